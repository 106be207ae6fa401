"""A model that repeats the last message: the smallest plugin of the group `toolmason.models`."""

from collections.abc import AsyncIterator
from typing import Any

from toolmason import Message
from toolmason.models import ModelEvent, ModelReply, ModelRequest, iter_reply_events


class EchoModel:
    """`model("echo")` repeats the last message; `model("echo:PREFIX")` puts PREFIX before it."""

    def __init__(self, prefix: str = "", /, **options: Any) -> None:
        del options  # of requests over HTTP: keys, addresses, retries
        self.name = f"echo:{prefix}" if prefix else "echo"
        self._prefix = f"{prefix} " if prefix else ""

    async def respond(self, request: ModelRequest) -> ModelReply:
        """Return the last message as the answer."""
        return ModelReply(Message("assistant", self._prefix + request.messages[-1].text))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer word by word; the last event is `Finished`."""
        for event in iter_reply_events(await self.respond(request)):
            yield event
