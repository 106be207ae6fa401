"""Model that repeats the last message: the smallest plugin of the group `toolmason.models`."""

from collections.abc import AsyncIterator
from typing import Any

from toolmason import Message
from toolmason.models import ModelEvent, ModelReply, ModelRequest, iter_reply_events


class EchoModel:
    """Model that repeats the last message; `model("echo:PREFIX")` puts PREFIX before it."""

    def __init__(self, prefix: str = "", /, **options: Any) -> None:
        del options  # they configure HTTP requests: keys, URLs, retries
        self.name = f"echo:{prefix}" if prefix else "echo"
        self._prefix = f"{prefix} " if prefix else ""

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the last message as the reply."""
        return ModelReply(Message("assistant", self._prefix + request.messages[-1].text))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the reply word by word; the last event is `Finished`."""
        for event in iter_reply_events(await self.respond(request)):
            yield event
