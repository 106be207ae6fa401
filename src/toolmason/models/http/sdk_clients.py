"""An official SDK's client → a sender, for those who need its ways to sign in: Azure, Bedrock, Vertex, tokens.

Lives here: what is called on the client. No SDK is imported: whoever has a client has loaded it.
Not here: our own connections (`transport`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from toolmason.errors import ConfigError, ModelError, text_of
from toolmason.models.http.endpoints import anthropic_flags
from toolmason.models.http.redaction import secrets_of_client
from toolmason.models.http.retries import asked_wait, may_pass

_PATHS: Final = {"openai": "/responses", "openai-chat": "/chat/completions", "anthropic": "/v1/messages"}
_MAKERS: Final = {"openai": "openai", "openai-chat": "openai", "anthropic": "anthropic", "gemini": "google"}


def sender_over(client: Any, provider: str, model: str) -> SdkSender | GenaiSender:
    """Return a sender over a client.

    Raises:
        ConfigError: the client is another provider's, or a sync one.
    """
    if not _is_of(client, _MAKERS[provider]):
        raise ConfigError(
            f"client={type(client).__module__}.{type(client).__name__} does not fit {provider!r}. "
            f"Give a client of the package {_MAKERS[provider]!r}."
        )
    if provider == "gemini":
        return GenaiSender(client, model)
    if not inspect.iscoroutinefunction(getattr(client, "post", None)):
        raise ConfigError(f"client={type(client).__name__} is not async. Give Async{type(client).__name__}(...).")
    return SdkSender(client, provider)


def _is_of(client: Any, package: str) -> bool:
    """Tell whether a client is of a package, or of a class that somebody made out of its own."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(client).__mro__)


class SdkSender:
    """Requests through `AsyncOpenAI`, `AsyncAzureOpenAI`, `AsyncAnthropic` and their kin. Retries are the client's."""

    def __init__(self, client: Any, provider: str) -> None:
        self._client, self._provider = client, provider

    def _options(self, body: Mapping[str, Any]) -> dict[str, Any]:
        flags = anthropic_flags(body) if self._provider == "anthropic" else {}
        return {"headers": flags} if flags else {}

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no error may show."""
        return secrets_of_client(self._client)

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Return the answer."""
        try:
            return await self._client.post(
                _PATHS[self._provider], cast_to=object, body=dict(body), options=self._options(body)
            )
        except Exception as error:
            raise told(error, self._provider) from error

    async def events(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of the answer."""
        stream_type = sys.modules[_MAKERS[self._provider]].AsyncStream
        try:
            stream = await self._client.post(
                _PATHS[self._provider],
                cast_to=object,
                body=dict(body),
                options=self._options(body),
                stream=True,
                stream_cls=stream_type[object],
            )
            async for event in stream:
                yield event["data"] if event.keys() == {"data", "event"} else event
        except Exception as error:
            raise told(error, self._provider) from error

    async def again(self, error: ModelError, attempt: int) -> bool:  # noqa: ARG002 - the client has tried again itself
        """Tell that there is no other attempt."""
        return False

    async def aclose(self) -> None:
        """Leave the client open: it is the caller's."""


class GenaiSender:
    """Requests through `google.genai.Client`, or its `aio`."""

    def __init__(self, client: Any, model: str) -> None:
        self._models, self._model = getattr(client, "aio", client).models, model
        self._client = client  # a client that nobody holds is closed

    def _arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: body[key] for key in ("systemInstruction", "tools", "toolConfig") if key in body}
        rest = {k: v for k, v in body.items() if k not in {*own, "contents", "generationConfig"}}
        # What runs tools is the toolbox, not the SDK.
        manual = {"automaticFunctionCalling": {"disable": True}}
        config = {**body.get("generationConfig", {}), **own, **rest, **manual}
        return {"model": self._model, "contents": body["contents"], "config": config}

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no error may show."""
        return secrets_of_client(self._client)

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Return the answer."""
        try:
            return _plain(await self._models.generate_content(**self._arguments(body)))
        except Exception as error:
            raise told(error, "gemini") from error

    async def events(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of the answer."""
        try:
            async for event in await self._models.generate_content_stream(**self._arguments(body)):
                yield _plain(event)
        except Exception as error:
            raise told(error, "gemini") from error

    async def again(self, error: ModelError, attempt: int) -> bool:  # noqa: ARG002 - the client has tried again itself
        """Tell that there is no other attempt."""
        return False

    async def aclose(self) -> None:
        """Leave the client open: it is the caller's."""


def _plain(answer: Any) -> Any:
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


def told(error: Exception, provider: str) -> ModelError:
    """Return an SDK's error as ours."""
    if isinstance(error, ModelError):
        return error
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    number = status if isinstance(status, int) else None
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    code = str(inner.get("code") or inner.get("type") or "") if isinstance(inner, Mapping) else ""
    kind = type(error).__name__
    again = may_pass(number) if number is not None else "Connection" in kind or "Timeout" in kind
    made = ModelError(provider, text_of(error) or type(error).__name__, status=number, code=code, retryable=again)
    headers = getattr(getattr(error, "response", None), "headers", None)
    made.retry_after = asked_wait(headers) if isinstance(headers, Mapping) else None
    return made
