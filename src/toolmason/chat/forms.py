"""What an effect came to → JSON data for a journal, and back.

Lives here: the forms of a model's turn and of a call's result. Not here: writing them down (`journal`).
"""

from __future__ import annotations

from typing import Any, Final

from toolmason._core.exchange import ModelReply, Usage
from toolmason._core.messages import Message, dump_result, load_result
from toolmason._core.values import ToolResult
from toolmason.chat.runtime import Form
from toolmason.errors import ApprovalRequired


def _dump_reply(reply: ModelReply) -> dict[str, Any]:
    usage = {name: getattr(reply.usage, name) for name in Usage.__slots__}
    return {"message": reply.message.to_dict(), "finish": reply.finish, "usage": usage}


def _load_reply(data: dict[str, Any]) -> ModelReply:
    return ModelReply(Message.from_dict(data["message"]), (), data["finish"], Usage(**data["usage"]))


def _dump_result(result: ToolResult) -> dict[str, Any] | None:
    # A call that waits for a human was not made. It is asked about again, with a request that this process signs.
    return None if isinstance(result.error, ApprovalRequired) else dump_result(result)


REPLY: Final = Form(_dump_reply, _load_reply)
RESULT: Final = Form(_dump_result, load_result)
