"""Judges of request bodies that others wrote: the SDKs' request types, OpenAI's own document, Google's protos.

Lives here: one function for each provider that returns every objection. Not here: rules of ours.
"""

import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.warnings import TypedDictExtraConfigWarning
from pydantic_core import from_json, to_json, to_jsonable_python

DATA = Path(__file__).parents[1] / "data"


@lru_cache
def adapter(provider: str, *, stream: bool) -> TypeAdapter[Any]:
    from anthropic.types import message_create_params as messages
    from anthropic.types.beta import message_create_params as beta
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as responses

    kinds = {
        "openai": (responses.ResponseCreateParamsNonStreaming, responses.ResponseCreateParamsStreaming),
        "openai-chat": (chat.CompletionCreateParamsNonStreaming, chat.CompletionCreateParamsStreaming),
        "anthropic": (messages.MessageCreateParamsNonStreaming, messages.MessageCreateParamsStreaming),
        "anthropic-beta": (beta.MessageCreateParamsNonStreaming, beta.MessageCreateParamsStreaming),
    }
    # Of a list, because pydantic takes no settings for a TypedDict itself; they reach every one inside.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TypedDictExtraConfigWarning)  # one beta type takes anything, as it says
        return TypeAdapter(list[kinds[provider][stream]], config=ConfigDict(extra="forbid"))


def drained(value: Any) -> Any:
    """Walk a validated value, so that iterables that pydantic validates lazily are validated."""
    if isinstance(value, Mapping):
        return {key: drained(part) for key, part in value.items()}
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return value
    return [drained(part) for part in value]


def typed(provider: str, body: Mapping[str, Any]) -> list[str]:
    """Return what an SDK's request types object to."""
    try:
        drained(adapter(provider, stream=bool(body.get("stream"))).validate_python([body]))
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    return []


@lru_cache
def document() -> dict[str, Any]:
    return choices(from_json((DATA / "openai-requests.json").read_bytes()))


def choices(node: Any) -> Any:
    """Read `oneOf` with a discriminator as OpenAPI does: a choice; two of the document's own kinds fit one message."""
    if isinstance(node, list):
        return [choices(part) for part in node]
    if not isinstance(node, dict):
        return node
    made = {key: choices(part) for key, part in node.items()}
    if "discriminator" in made and "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    return made


@lru_cache
def validator(name: str) -> jsonschema.protocols.Validator:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document()["components"]}
    return jsonschema.Draft202012Validator(schema)


def documented(provider: str, body: Mapping[str, Any]) -> list[str]:
    """Return what OpenAI's own document objects to."""
    name = {"openai": "CreateResponse", "openai-chat": "CreateChatCompletionRequest"}[provider]
    return [f"{error.json_path}: {error.message[:200]}" for error in validator(name).iter_errors(body)]


def by_proto(body: Mapping[str, Any]) -> list[str]:
    """Return what Google's protos object to."""
    from google.ai.generativelanguage_v1beta.types import GenerateContentRequest
    from google.protobuf import json_format

    try:
        json_format.ParseDict({"model": "models/gemini-3", **body}, GenerateContentRequest.pb()())
    except json_format.ParseError as error:
        return [str(error)]
    return []


@lru_cache
def genai_adapters() -> dict[str, TypeAdapter[Any]]:
    """Return what google-genai takes under each key of a body."""
    from google.genai import types as genai

    kinds = {
        "contents": list[genai.Content],
        "tools": list[genai.Tool],
        "toolConfig": genai.ToolConfig | None,
        "systemInstruction": genai.Content | None,
        "generationConfig": genai.GenerationConfig | None,
    }
    return {name: TypeAdapter(kind) for name, kind in kinds.items()}


def by_genai(body: Mapping[str, Any]) -> list[str]:
    """Return what the types of google-genai, which forbid what they do not know, object to."""
    found = []
    parts = genai_adapters()
    lists: dict[str, Any] = {"contents": [], "tools": []}
    for name, judge in parts.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                judge.validate_json(to_json(body.get(name, lists.get(name))))
        except UserWarning as warning:  # an enum of theirs warns of a value that it does not know
            found.append(f"{name}: {warning}")
        except ValidationError as error:
            found += [f"{name}.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    return found + [f"{key}: unknown" for key in body.keys() - parts.keys()]


def objections(provider: str, body: Mapping[str, Any]) -> list[str]:
    """Return what any judge of a provider objects to in a body; empty where it can be sent."""
    plain = to_jsonable_python(from_json(to_json(body)))
    if provider == "gemini":
        return by_genai(plain) + by_proto(plain)
    if provider == "anthropic":
        return typed("anthropic-beta" if "mcp_servers" in plain else "anthropic", plain)
    return typed(provider, plain) + documented(provider, plain)
