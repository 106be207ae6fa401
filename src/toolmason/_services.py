"""Provide the table of providers: addresses, variables of keys, options, and the ways in which their APIs differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import urlsplit

_CHAT_OPTIONS: Final = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "stop": "stop",
    "cache": "",
}
"""Options that every server with Chat Completions has. An empty field: nothing is sent, the prefix is cached anyway."""
_EFFORT: Final = {"reasoning": "reasoning_effort"}
_SEED: Final = {"seed": "seed"}
_LOGPROBS: Final = {"logprobs": "logprobs"}
_PARALLEL: Final = {"parallel": "parallel_tool_calls"}
_TIER: Final = {"service_tier": "service_tier"}
_TOP_K: Final = {"top_k": "top_k"}
_COMPLETION_TOKENS: Final = {"max_tokens": "max_completion_tokens"}

_GEMINI_OPTIONS: Final = {
    "max_tokens": "generationConfig.maxOutputTokens",
    "temperature": "generationConfig.temperature",
    "top_p": "generationConfig.topP",
    "top_k": "generationConfig.topK",
    "stop": "generationConfig.stopSequences",
    "seed": "generationConfig.seed",
    "logprobs": "generationConfig.responseLogprobs",
    "reasoning": "generationConfig.thinkingConfig",
    "service_tier": "serviceTier",
    "cache": "",
}
_GEMINI_BUDGET: Final = "generationConfig.thinkingConfig.thinkingBudget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One provider: where its API is, and how it differs from others of the same format."""

    name: str = ""
    format: Literal["openai", "openai-chat", "anthropic", "gemini"] = "openai-chat"
    base_url: str = ""
    """Address of the API; empty if each user has another one."""
    url_variable: str = ""
    """Environment variable with another address."""
    url_suffix: str = ""
    """Path that the address in the variable lacks."""
    key_variables: tuple[str, ...] = ()
    needs_key: bool = True
    hosts: tuple[str, ...] = ()
    """Further hosts that belong to the provider, with their subdomains."""
    key_header: str = "Authorization"
    headers: Mapping[str, str] = field(default_factory=dict)
    field_headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Headers that fields of the body require, such as beta flags."""
    options: Mapping[str, str] = field(default_factory=lambda: _CHAT_OPTIONS)
    """Field of the body for each option that the API has, as a dotted path. All other options are refused."""
    efforts: tuple[str, ...] = ("low", "medium", "high")
    """Levels of the option `reasoning`."""
    budget_field: str = ""
    """Field for a number of tokens as `reasoning`; empty if the API has none."""
    has_stream_options: bool = True
    """False if the API rejects `stream_options`."""
    strict: Literal["mixed", "uniform", "never"] = "mixed"
    """`uniform` if strict and other tools must not be mixed, `never` if the API has no strict tools."""
    short_call_ids: bool = False
    """True if the API accepts only call IDs of nine letters and digits."""
    allows_user_after_tool: bool = True
    """False if the API rejects a message of the user after results of tools."""
    returned_keys: tuple[str, ...] = ("reasoning_content", "reasoning_details", "extra_content")
    """Extra keys of messages that the API sends and expects back."""


def _make_local(port: int, url_variable: str, key_variable: str, options: Mapping[str, str]) -> Service:
    """Return a server on this machine. Its small models copy the `null` of strict schemas, so it gets none."""
    return Service(
        base_url=f"http://localhost:{port}/v1",
        url_variable=url_variable,
        key_variables=(key_variable,),
        needs_key=False,
        options={**_CHAT_OPTIONS, **options},
        strict="never",
        returned_keys=(),
    )


_TABLE: Final[Mapping[str, Service]] = {
    "openai": Service(
        format="openai",
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variables=("OPENAI_API_KEY",),
        options={
            "max_tokens": "max_output_tokens",
            "temperature": "temperature",
            "top_p": "top_p",
            "reasoning": "reasoning.effort",
            "logprobs": "top_logprobs",
            "cache": "",
            **_TIER,
            **_PARALLEL,
        },
    ),
    # Any server with Chat Completions; the hosts of other services in this table have their own row.
    "openai-chat": Service(
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variables=("OPENAI_API_KEY",),
        options={**_CHAT_OPTIONS, **_EFFORT, **_SEED, **_LOGPROBS, **_TIER, **_PARALLEL},
    ),
    "anthropic": Service(
        format="anthropic",
        base_url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variables=("ANTHROPIC_API_KEY",),
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        field_headers={"mcp_servers": {"anthropic-beta": "mcp-client-2025-11-20"}},
        options={
            "max_tokens": "max_tokens",
            "stop": "stop_sequences",
            "reasoning": "thinking",
            "cache": "cache_control",
            "parallel": "tool_choice.disable_parallel_tool_use",
            **_TIER,
        },
        budget_field="thinking.budget_tokens",
    ),
    "gemini": Service(
        format="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        url_variable="GOOGLE_GEMINI_BASE_URL",
        url_suffix="/v1beta",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_header="x-goog-api-key",
        options=_GEMINI_OPTIONS,
        budget_field=_GEMINI_BUDGET,
    ),
    # Through the client of Google's SDK, which has the address and the credentials.
    "vertex": Service(
        format="gemini",
        key_variables=("GOOGLE_API_KEY",),
        options=_GEMINI_OPTIONS,
        budget_field=_GEMINI_BUDGET,
    ),
    "azure": Service(
        url_variable="AZURE_OPENAI_ENDPOINT",
        url_suffix="/openai/v1",
        key_variables=("AZURE_OPENAI_API_KEY",),
        hosts=("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"),
        key_header="api-key",
        # A deployment has any name, so the field cannot depend on it; every current model has this one.
        options={
            **_CHAT_OPTIONS,
            **_EFFORT,
            **_SEED,
            **_LOGPROBS,
            **_TIER,
            **_PARALLEL,
            **_COMPLETION_TOKENS,
        },
    ),
    # Rejects `stream_options` (openai/openai-agents-python#442), other call IDs (langchain#24668), and a message of
    # the user after results.
    "mistral": Service(
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        options={**_CHAT_OPTIONS, **_EFFORT, **_PARALLEL, "seed": "random_seed"},
        efforts=("high",),
        has_stream_options=False,
        short_call_ids=True,
        allows_user_after_tool=False,
        returned_keys=(),
    ),
    # Rejects `logprobs` (console.groq.com/docs/openai).
    "groq": Service(
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        options={**_CHAT_OPTIONS, **_EFFORT, **_SEED, **_TIER, **_PARALLEL, **_COMPLETION_TOKENS},
        returned_keys=(),
    ),
    # Strict tools only at another address; `reasoning_content` must come back (api-docs.deepseek.com, thinking mode).
    "deepseek": Service(
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        options={**_CHAT_OPTIONS, **_EFFORT, **_LOGPROBS},
        strict="never",
        returned_keys=("reasoning_content",),
    ),
    # Rejects mixed `strict` (RooCodeInc/Roo-Code#10334), `parallel_tool_calls` and `service_tier`.
    "cerebras": Service(
        base_url="https://api.cerebras.ai/v1",
        key_variables=("CEREBRAS_API_KEY",),
        options={**_CHAT_OPTIONS, **_EFFORT, **_SEED, **_LOGPROBS, **_COMPLETION_TOKENS},
        strict="uniform",
        returned_keys=(),
    ),
    # Reports errors in responses with the status 200.
    "openrouter": Service(
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        options={
            **_CHAT_OPTIONS,
            **_SEED,
            **_LOGPROBS,
            **_PARALLEL,
            **_TOP_K,
            "reasoning": "reasoning.effort",
        },
        budget_field="reasoning.max_tokens",
        returned_keys=("reasoning_details", "extra_content"),
    ),
    "xai": Service(
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        options={**_CHAT_OPTIONS, **_EFFORT, **_SEED, **_LOGPROBS, **_PARALLEL, **_COMPLETION_TOKENS},
        strict="never",
        returned_keys=("reasoning_content",),
    ),
    "together": Service(
        base_url="https://api.together.xyz/v1",
        key_variables=("TOGETHER_API_KEY",),
        options={**_CHAT_OPTIONS, **_EFFORT, **_SEED, **_TOP_K},
        strict="never",
        returned_keys=(),
    ),
    "fireworks": Service(
        base_url="https://api.fireworks.ai/inference/v1",
        key_variables=("FIREWORKS_API_KEY",),
        options={**_CHAT_OPTIONS, **_EFFORT, **_SEED, **_LOGPROBS, **_TOP_K},
        strict="never",
        returned_keys=("reasoning_content",),
    ),
    # The fields of docs.ollama.com/api/openai-compatibility.
    "ollama": replace(
        _make_local(11434, "OLLAMA_HOST", "OLLAMA_API_KEY", {**_EFFORT, **_SEED, **_LOGPROBS}), url_suffix="/v1"
    ),
    "lmstudio": _make_local(1234, "LM_STUDIO_API_BASE", "LM_STUDIO_API_KEY", {**_SEED, **_TOP_K}),
    "vllm": _make_local(
        8000, "VLLM_BASE_URL", "VLLM_API_KEY", {**_EFFORT, **_SEED, **_LOGPROBS, **_TOP_K, **_PARALLEL}
    ),
}
SERVICES: Final[Mapping[str, Service]] = MappingProxyType(
    {name: replace(service, name=name) for name, service in _TABLE.items()}
)
"""All providers that have a name."""


def find_service(service: Service, url: str) -> Service:
    """Return the service that an address belongs to: a server with Chat Completions may be one of the table."""
    if service.name != "openai-chat":
        return service
    others = (each for each in SERVICES.values() if each.format == "openai-chat" and each.needs_key)
    return next((each for each in others if each is not service and is_own_host(each, url)), service)


def is_own_host(service: Service, url: str) -> bool:
    """Return True if a URL belongs to the provider. The key of the environment is for no other host."""
    host = urlsplit(url).hostname or ""
    own = (urlsplit(service.base_url).hostname or "", *service.hosts)
    return url.startswith("https://") and any(host == each or host.endswith(f".{each}") for each in own if each)
