"""Build a provider's URLs and headers from a model name, an API key and the environment variables of its SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlunsplit

from toolmason._secrets import remember_secrets
from toolmason._services import SERVICES, Service, find_service, is_own_host
from toolmason._text import split_url
from toolmason.errors import ConfigError
from toolmason.models.http.sender import Endpoint


def get_base_url(service: Service, base_url: str | None) -> str:
    """Return the address of a service: the given one, that of the environment, or its own.

    Raises:
        ConfigError: it is not a URL, or the service has none of its own.
    """
    base = base_url or ""
    if not base and service.url_variable and (base := os.environ.get(service.url_variable, "")):
        base = base if "://" in base else f"http://{base}"  # OLLAMA_HOST may be a host and a port
        is_whole = split_url(base).path.strip("/") or not service.url_suffix
        base = base if is_whole else base.rstrip("/") + service.url_suffix
    base = base or service.base_url
    if not base:
        raise ConfigError(f"{service.name} has no common address. Set {service.url_variable}, or pass `base_url=`.")
    if not base.startswith(("http://", "https://")) or not split_url(base).netloc:
        raise ConfigError(f"base_url={base!r} is not a URL. Use http://… or https://….")
    return base


def make_endpoint(
    provider: str,
    model: str,
    *,
    base_url: str | None,
    api_key: str | None,
    headers: Mapping[str, str] | None = None,
) -> Endpoint:
    """Return the endpoint of a model. With a `base_url` of another host, only `api_key` is sent.

    Raises:
        ConfigError: the provider requires an API key and none is set, or the URL, the key or a header is invalid.
    """
    named = SERVICES[provider]
    base = get_base_url(named, base_url)
    service = find_service(named, base)
    key = api_key or ""
    if not key and (base_url is None or is_own_host(service, base)):
        key = next((os.environ[name] for name in service.key_variables if os.environ.get(name)), "")
    if not key and service.needs_key and (base == service.base_url or not service.base_url) and base_url is None:
        names = " or ".join(service.key_variables)
        raise ConfigError(f"No API key for {provider}. Set {names}, or pass `api_key=`.")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"The API key for {provider} contains invalid characters. Copy it again.")
    remember_secrets({"api_key": key}, base)
    key_headers = {service.key_header: f"Bearer {key}" if service.key_header == "Authorization" else key}
    paths = _get_paths(service, model)
    return Endpoint(
        provider=provider,
        service=service,
        url=_add_path(base, paths[0]),
        stream_url=_add_path(base, paths[1]),
        count_url=_add_path(base, paths[2]) if paths[2] else "",
        headers={**(key_headers if key else {}), **service.headers, **check_headers(headers)},
        secret=key,
        field_headers=service.field_headers,
    )


def _get_paths(service: Service, model: str) -> tuple[str, str, str]:
    """Return the paths of plain requests, of streaming ones, and of those that count tokens."""
    if service.format == "gemini":
        name = quote(model if model.startswith(("models/", "tunedModels/")) else f"models/{model}", safe="/")
        return f"{name}:generateContent", f"{name}:streamGenerateContent?alt=sse", f"{name}:countTokens"
    path = {"openai": "responses", "anthropic": "v1/messages"}.get(service.format, "chat/completions")
    count = {"openai": "responses/input_tokens", "anthropic": "v1/messages/count_tokens"}.get(service.format, "")
    return path, path, count


def _add_path(base: str, path: str) -> str:
    """Return a URL with a further path; a query of the base, such as `?api-version=…`, stays at the end."""
    parts = split_url(base)
    path, _, query = path.partition("?")
    base_path = parts.path.rstrip("/")
    base_path = base_path.removesuffix("/v1") if path.startswith("v1/") else base_path
    queries = "&".join(filter(None, (parts.query, query)))
    return urlunsplit((parts.scheme, parts.netloc, f"{base_path}/{path}", queries, ""))


def check_headers(headers: Any) -> dict[str, str]:
    """Return the headers of the caller.

    Raises:
        ConfigError: they are not a mapping of header names to values.
    """
    given: dict[Any, Any] = dict(headers or {}) if isinstance(headers, Mapping | None) else {None: headers}
    for name, value in given.items():
        texts = (name, value)
        if not all(isinstance(text, str) and text.isascii() and text.isprintable() and text for text in texts):
            raise ConfigError(f"headers={{{name!r}: …}}: names and values must be printable ASCII strings.")
    return given
