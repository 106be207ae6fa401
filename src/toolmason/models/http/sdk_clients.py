"""Send requests through the client of an official SDK, for its authentication: Azure, Bedrock, Vertex, tokens.

A caller with a client has already loaded its SDK. Only `vertex` imports one, with its first request.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from typing_extensions import override

from toolmason._services import Service, find_service
from toolmason._wire import parse_retry_after
from toolmason.errors import ConfigError, ModelError, safe_str
from toolmason.models.http.redaction import find_client_secrets
from toolmason.models.http.sender import get_origin, join_headers
from toolmason.providers.codec import parse_error

_PATHS: Final = {"openai": "/responses", "openai-chat": "/chat/completions", "anthropic": "/v1/messages"}
_PACKAGES: Final = {"openai": "openai", "openai-chat": "openai", "anthropic": "anthropic", "gemini": "google"}


def find_client_service(service: Service, client: Any) -> Service:
    """Return the service of a client: the address of an OpenAI client may be that of another one."""
    return find_service(service, str(getattr(client, "base_url", "")))


def make_sender(client: Any, service: Service, model: str, headers: Mapping[str, str]) -> SdkSender:
    """Return a sender that uses a client.

    Raises:
        ConfigError: the client belongs to another provider or is synchronous.
    """
    provider = service.format
    # Its class is from the package, or derived from one of its classes.
    if all(kind.__module__.partition(".")[0] != _PACKAGES[provider] for kind in type(client).__mro__):
        raise ConfigError(
            f"client={type(client).__module__}.{type(client).__name__} does not match {provider!r}. "
            f"Pass a client from the package {_PACKAGES[provider]!r}."
        )
    if provider == "gemini":
        return GenaiSender(client, service, model, headers)
    if not inspect.iscoroutinefunction(getattr(client, "post", None)):
        raise ConfigError(f"client={type(client).__name__} is not async. Pass Async{type(client).__name__}(...).")
    return SdkSender(client, service, headers)


def make_vertex_sender(  # noqa: PLR0913 - one parameter for each option of the connection
    service: Service,
    model: str,
    headers: Mapping[str, str],
    *,
    api_key: str | None,
    base_url: str | None,
    timeout: float | None,
    max_retries: int,
) -> Callable[[], SdkSender]:
    """Return a function that makes a sender with clients of Google's SDK for Vertex AI.

    Raises:
        ConfigError: neither a project nor a key is set.
        ImportError: the SDK is not installed.
    """
    if find_spec("google") is None or find_spec("google.genai") is None:  # pragma: no cover - the test suite has it
        raise ImportError("vertex needs Google's SDK: pip install google-genai")
    if not (api_key or os.environ.get("GOOGLE_CLOUD_PROJECT") or os.environ.get("GOOGLE_API_KEY")):
        raise ConfigError("No project for vertex. Set GOOGLE_CLOUD_PROJECT, or pass `api_key=`.")
    if base_url and not api_key:  # the SDK would send the key of the environment there
        raise ConfigError("vertex: base_url= requires `api_key=`, or a `client=genai.Client(...)` of your own.")
    http: dict[str, Any] = {"retry_options": {"attempts": max_retries + 1}}
    if base_url is not None:
        http["base_url"] = base_url
    if timeout is not None:
        http["timeout"] = int(timeout * 1000)

    def make_client() -> Any:
        return import_module("google.genai").Client(vertexai=True, api_key=api_key, http_options=http)

    return lambda: VertexSender(make_client, service, model, headers)


class SdkSender:
    """Sender that uses `AsyncOpenAI`, `AsyncAzureOpenAI`, `AsyncAnthropic` or similar. The client does the retries."""

    def __init__(self, client: Any, service: Service, headers: Mapping[str, str]) -> None:
        self._client, self._service, self._headers = client, service, headers
        self._provider = service.format

    @property
    def secrets(self) -> tuple[str, ...]:
        """Strings that errors must not contain."""
        return find_client_secrets(self._client)

    @property
    def _origin(self) -> str:
        """Address of the client, or an empty string if it shows none."""
        url = str(getattr(self._client, "base_url", ""))
        return get_origin(url) if "://" in url else ""

    async def post(self, body: Mapping[str, Any], *, count: bool = False) -> Any:
        """Return the response; with `count`, that of the API that counts the tokens of a request."""
        try:
            return await (self._count(body) if count else self._request(body))
        except Exception as error:
            raise to_model_error(error, self._service.name, self._origin) from error

    async def events(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of the response."""
        try:
            async for event in await self._open_stream(body):
                yield event
        except Exception as error:
            raise to_model_error(error, self._service.name, self._origin) from error

    def _count(self, body: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        path = {"openai": "/responses/input_tokens", "anthropic": "/v1/messages/count_tokens"}[self._provider]
        return self._request(body, path=path)

    async def _request(self, body: Mapping[str, Any], path: str = "", **stream_options: Any) -> Any:
        headers = dict(self._headers)
        for name, field_headers in self._service.field_headers.items():
            if body.get(name):
                headers = join_headers(headers, field_headers)
        options = {"headers": headers} if headers else {}
        return await self._client.post(
            path or _PATHS[self._provider], cast_to=object, body=dict(body), options=options, **stream_options
        )

    async def _open_stream(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        stream_type = sys.modules[_PACKAGES[self._provider]].AsyncStream
        events = await self._request(body, stream=True, stream_cls=stream_type[object])
        return (event["data"] if event.keys() == {"data", "event"} else event async for event in events)

    async def wait_for_retry(self, error: ModelError, attempt: int) -> bool:  # noqa: ARG002 - the client has already retried
        """Return False: the client has already retried."""
        return False

    async def aclose(self) -> None:
        """Leave the client open: the caller owns it."""


class GenaiSender(SdkSender):
    """Sender that uses `google.genai.Client` or its `aio`."""

    def __init__(self, client: Any, service: Service, model: str, headers: Mapping[str, str]) -> None:
        super().__init__(client, service, headers)  # holds the client, which closes when it is garbage-collected
        self._model = model

    @property
    def _models(self) -> Any:
        return getattr(self._client, "aio", self._client).models

    def _make_arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        settings = {key: value for key, value in body.items() if key not in ("contents", "generationConfig")}
        # The toolbox runs the tools, not the SDK.
        manual = {"automaticFunctionCalling": {"disable": True}}
        http = {"httpOptions": {"headers": dict(self._headers)}} if self._headers else {}
        config = {**body.get("generationConfig", {}), **settings, **manual, **http}
        return {"model": self._model, "contents": body["contents"], "config": config}

    @override
    async def _count(self, body: Mapping[str, Any]) -> Any:
        given = body["generateContentRequest"]
        return _to_plain(await self._models.count_tokens(model=self._model, contents=given["contents"]))

    @override
    async def _request(self, body: Mapping[str, Any], path: str = "", **stream_options: Any) -> Any:
        return _to_plain(await self._models.generate_content(**self._make_arguments(body)))

    @override
    async def _open_stream(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        events = await self._models.generate_content_stream(**self._make_arguments(body))
        return (_to_plain(event) async for event in events)


class VertexSender(GenaiSender):
    """Sender that makes its clients, one for each event loop, because a connection belongs to its loop."""

    def __init__(
        self, make_client: Callable[[], Any], service: Service, model: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(None, service, model, headers)
        self._make_client = make_client
        self._clients: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @property
    @override
    def secrets(self) -> tuple[str, ...]:
        return tuple(secret for client in self._clients.values() for secret in find_client_secrets(client))

    @property
    @override
    def _models(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._make_client()
        return self._clients[loop].aio.models

    @override
    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aio.aclose()
            client.close()


def _to_plain(answer: Any) -> Any:
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


def to_model_error(error: Exception, provider: str, origin: str = "") -> ModelError:
    """Convert an SDK's error to a ModelError; `origin` is the address that was asked."""
    if isinstance(error, ModelError):
        return error
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    # A stream that ends in an error has the status of its start.
    status_code = status if isinstance(status, int) and status >= 400 else None  # noqa: PLR2004 - those of errors
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    told = parse_error(provider, {"error": inner if isinstance(inner, Mapping) else {"message": ""}}, status_code)
    kind = type(error).__name__
    is_unanswered = told.status is None and not told.code and ("Connection" in kind or "Timeout" in kind)
    message = safe_str(error) or kind
    if origin and is_unanswered:
        message = f"no response from {origin} ({message.rstrip('.')})"
    retryable = told.retryable or is_unanswered
    model_error = ModelError(provider, message, status=told.status, code=told.code, retryable=retryable)
    headers = getattr(getattr(error, "response", None), "headers", None)
    model_error.retry_after = parse_retry_after(headers) if isinstance(headers, Mapping) else None
    return model_error
