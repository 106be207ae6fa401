"""Translate the options of a request to the fields of a provider, and merge fields that the caller adds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from toolmason._services import Service
from toolmason.errors import ConfigError

TRANSLATED: Final = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "stop",
    "seed",
    "reasoning",
    "service_tier",
    "logprobs",
    "cache",
)
"""Options that become fields of a request. `parallel` is one as well, beside the tools."""
_NUMBERS: Final = {"temperature": (0, 2), "top_p": (0, 1)}
_MIN_RESPONSES_TOKENS: Final = 16
"""Minimum of `max_output_tokens` in OpenAI's specification."""
_DEFAULT_BUDGETS: Final = {"low": 2048, "medium": 8192, "high": 16384}
"""Tokens for each level of reasoning, for models that only accept a number."""
_MIN_BUDGET: Final = 1024
"""Minimum of Anthropic's `budget_tokens`."""
_ADAPTIVE_CLAUDE: Final = re.compile(r"claude-(opus|sonnet|haiku)-(4-[6-9]|[5-9]|\d\d)")
"""Models of Anthropic that choose how long to think; older ones accept only a number of tokens."""
_LEVELED_GEMINI: Final = re.compile(r"(models/)?gemini-([3-9]|\d\d)")
_OPENAI_MODEL: Final = re.compile(r"(ft:|openai/)?(gpt-(?!oss)|chatgpt|o\d)")
"""Models that reject `max_tokens` in Chat Completions; most compatible servers know only that."""


def map_options(options: Mapping[str, Any], service: Service, model: str) -> dict[str, Any]:
    """Return the fields of a request for its options.

    Raises:
        ConfigError: an option has an invalid value, or the provider does not support it.
    """
    fields: dict[str, Any] = {}
    for name in (*TRANSLATED, "parallel"):
        value = options.get(name)
        if value is None:
            continue
        check_option(name, value)
        path = service.options.get(name)
        if path is None and name == "parallel" and value:
            continue  # every API allows several calls by default
        if path is None:
            raise ConfigError(
                f"{service.name} does not support the option {name!r}. Omit it, or force a field with "
                f'options={{"body": {{{name!r}: ...}}}}.'
            )
        if path and name != "parallel" and value is not False:
            fields = merge_body(fields, _translate(name, value, path, service, model))
    budget = (fields.get("thinking") or {}).get("budget_tokens")
    if budget is not None and not _MIN_BUDGET <= budget < fields.get("max_tokens", budget + 1):
        raise ConfigError(
            f"{service.name}: reasoning of {budget} tokens must be at least {_MIN_BUDGET} and less than max_tokens. "
            "Change one of them, or omit max_tokens."
        )
    return fields


def check_option(name: str, value: Any) -> None:
    """Raise ConfigError if the value of an option is invalid for every provider."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if name in _NUMBERS:
        low, high = _NUMBERS[name]
        valid, wanted = is_number and low <= value <= high, f"a number from {low} to {high}"
    elif name in ("max_tokens", "top_k"):
        valid, wanted = is_count and value > 0, "a positive integer"
    elif name == "seed":
        valid, wanted = is_count, "an integer"
    elif name in ("stop", "defer"):
        texts = [value] if isinstance(value, str) else value
        kinds = (list, tuple) if name == "stop" else (list, tuple, set, frozenset)
        valid = isinstance(texts, kinds) and all(isinstance(text, str) and text for text in texts)
        wanted = "a string or a list of strings"
    elif name == "reasoning":
        valid = value in [*_DEFAULT_BUDGETS] or (is_count and value >= 0)
        wanted = '"low", "medium", "high", a number of tokens, or 0 for none'
    elif name == "logprobs":
        valid, wanted = isinstance(value, bool) or (is_count and 0 <= value <= 20), "a bool or a number up to 20"  # noqa: PLR2004 - the maximum of all APIs
    elif name == "cache":
        valid, wanted = isinstance(value, bool) or value in ("5m", "1h"), 'a bool, "5m" or "1h"'
    elif name == "parallel":
        valid, wanted = isinstance(value, bool), "a bool"
    else:
        valid, wanted = isinstance(value, str) and bool(value), "a string"
    if not valid:
        raise ConfigError(f"options={{{name!r}: {value!r:.60}}}: must be {wanted}.")


def _translate(name: str, value: Any, path: str, service: Service, model: str) -> dict[str, Any]:
    if name == "reasoning":
        return _format_reasoning(value, path, service, model)
    if name == "cache":
        ttl = {} if value is True else {"ttl": value}
        return _nest(path, {"type": "ephemeral", **ttl})
    if name == "logprobs":
        return _format_logprobs(0 if value is True else value, service)
    if name == "stop" and isinstance(value, str):
        value = [value]
    if name == "max_tokens":
        if service.format == "openai" and value < _MIN_RESPONSES_TOKENS:
            raise ConfigError(f"{service.name}: max_tokens must be at least {_MIN_RESPONSES_TOKENS}, not {value}.")
        if service.name == "openai-chat" and _OPENAI_MODEL.match(model):
            path = "max_completion_tokens"
    return _nest(path, list(value) if name == "stop" else value)


def _format_logprobs(count: int, service: Service) -> dict[str, Any]:
    if service.format == "openai":
        return {"top_logprobs": count, "include": ["message.output_text.logprobs"]}
    if service.format == "gemini":
        return {"generationConfig": {"responseLogprobs": True, **({"logprobs": count} if count else {})}}
    return {"logprobs": True, **({"top_logprobs": count} if count else {})}


def _format_reasoning(value: str | int, path: str, service: Service, model: str) -> dict[str, Any]:
    if isinstance(value, str) and value not in service.efforts:
        known = ", ".join(map(repr, service.efforts))
        raise ConfigError(f"{service.name} has no reasoning level {value!r}. Use one of: {known}.")
    if service.format == "anthropic":
        if value == 0:
            return {"thinking": {"type": "disabled"}}
        if isinstance(value, str) and _ADAPTIVE_CLAUDE.match(model):
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": value}}
        return {"thinking": {"type": "enabled", "budget_tokens": get_budget(value)}}
    if service.format == "gemini":
        if isinstance(value, str) and _LEVELED_GEMINI.match(model):
            return _nest(f"{path}.thinkingLevel", value.upper())
        return _nest(service.budget_field, get_budget(value))
    if isinstance(value, int) and value:
        if not service.budget_field:
            raise ConfigError(
                f"{service.name} takes no number of tokens for reasoning, {value!r}. Use one of: "
                f"{', '.join(map(repr, service.efforts))}, or 0 for none."
            )
        return _nest(service.budget_field, value)
    return _nest(path, value or "none")


def get_budget(value: str | int) -> int:
    """Return the tokens of a level of reasoning, or the number itself."""
    return _DEFAULT_BUDGETS[value] if isinstance(value, str) else value


def _nest(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def merge_options(options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with others in place of those of the same name; the fields in `body` are merged."""
    joined = {**options, **more}
    if options.get("body") and more.get("body"):
        joined["body"] = merge_body(options["body"], more["body"])
    return joined


def merge_body(body: Mapping[str, Any], given: Mapping[str, Any], place: str = "body") -> dict[str, Any]:
    """Return a request body with other fields, such as those of the option `body`, merged at every depth.

    Mappings are merged key by key. The items of a list are appended, except those that are already in it. `None`
    removes a field. Any other value replaces the one of the field.

    Raises:
        ConfigError: a value would replace a mapping or a list.
    """
    merged = dict(body)
    for key, value in given.items():
        own = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(own, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_body(own, value, f"{place}.{key}")
        elif isinstance(own, list) and isinstance(value, list | tuple):
            merged[key] = [*own, *(item for item in value if item not in own)]
        elif isinstance(own, Mapping | list):
            kind = "list" if isinstance(own, list) else "mapping"
            raise ConfigError(
                f"options: {place}.{key}={value!r:.60} would replace the {kind} of the request. Pass a {kind}, which "
                "is merged with it, or None to remove it."
            )
        else:
            merged[key] = value
    return merged
