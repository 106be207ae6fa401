"""Build a provider's URL and headers from a model name, an API key and the environment variables of its SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

from toolmason._secrets import remember_secrets
from toolmason.errors import ConfigError
from toolmason.models.http.sender import Endpoint

ANTHROPIC_FIELD_HEADERS: Final = {"mcp_servers": {"anthropic-beta": "mcp-client-2025-11-20"}}
"""Beta headers that fields of the body require."""


@dataclass(frozen=True, slots=True)
class ProviderDefaults:
    """Default URL and environment variables of a provider."""

    base_url: str
    url_variable: str
    key_variables: tuple[str, ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    field_headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


PROVIDER_DEFAULTS: Final[Mapping[str, ProviderDefaults]] = {
    "openai": ProviderDefaults("https://api.openai.com/v1", "OPENAI_BASE_URL", ("OPENAI_API_KEY",)),
    "openai-chat": ProviderDefaults("https://api.openai.com/v1", "OPENAI_BASE_URL", ("OPENAI_API_KEY",)),
    "anthropic": ProviderDefaults(
        "https://api.anthropic.com",
        "ANTHROPIC_BASE_URL",
        ("ANTHROPIC_API_KEY",),
        {"anthropic-version": "2023-06-01"},
        ANTHROPIC_FIELD_HEADERS,
    ),
    "gemini": ProviderDefaults(
        "https://generativelanguage.googleapis.com/v1beta", "GEMINI_BASE_URL", ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    ),
}


def _is_own_host(url: str, own_url: str) -> bool:
    """Return True if a URL belongs to the provider. The key of the environment is for no other host."""
    host, own_host = (urlsplit(text).hostname or "" for text in (url, own_url))
    return url.startswith("https://") and (host == own_host or host.endswith(f".{own_host}"))


def make_endpoint(provider: str, model: str, *, base_url: str | None, api_key: str | None) -> Endpoint:
    """Return the endpoint of a model. With a `base_url` of another host, only `api_key` is sent.

    Raises:
        ConfigError: the provider requires an API key and none is set, or the URL or the key is invalid.
    """
    defaults = PROVIDER_DEFAULTS[provider]
    base = (base_url or os.environ.get(defaults.url_variable) or defaults.base_url).rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise ConfigError(f"base_url={base!r} is not a URL. Use http://… or https://….")
    key = api_key or ""
    if not key and (base_url is None or _is_own_host(base, defaults.base_url)):
        key = next((os.environ[name] for name in defaults.key_variables if os.environ.get(name)), "")
    if not key and base == defaults.base_url:
        names = " or ".join(defaults.key_variables)
        raise ConfigError(f"No API key for {provider}. Set {names}, or pass `api_key=`.")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"The API key for {provider} contains invalid characters. Copy it again.")
    remember_secrets({"api_key": key}, base)
    stream_url = None
    if provider == "anthropic":
        url, headers = f"{base.removesuffix('/v1')}/v1/messages", {"x-api-key": key}
    elif provider == "gemini":
        path = quote(model if model.startswith(("models/", "tunedModels/")) else f"models/{model}", safe="/")
        # The key goes into a header, because URLs end up in logs.
        url, headers = f"{base}/{path}:generateContent", {"x-goog-api-key": key}
        stream_url = f"{base}/{path}:streamGenerateContent?alt=sse"
    else:
        url = f"{base}/{'responses' if provider == 'openai' else 'chat/completions'}"
        headers = {"Authorization": f"Bearer {key}"}
    return Endpoint(
        provider=provider,
        url=url,
        stream_url=stream_url or url,
        headers={**(headers if key else {}), **defaults.headers},
        secret=key,
        field_headers=defaults.field_headers,
    )
