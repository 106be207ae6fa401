"""A request that a client made of us → the same request to a server behind us, on that client's behalf.

Lives here: whose capabilities, questions, answers, log records and errors go through, in either era. A question goes to
the client whose request caused it, and to nobody where that cannot be known. Not here: which requests are passed on
(`connection`), or how a client is asked (`toolmason.serving`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import CLIENT_CAPABILITIES_META_KEY, INVALID_REQUEST, LOG_LEVEL_META_KEY, Request, RequestParams
from mcp_types.jsonrpc import HEADER_MISMATCH
from pydantic import ConfigDict, TypeAdapter
from pydantic_core import to_json
from typing_extensions import override

from toolmason._core.define.mcp_client import Relay
from toolmason._core.values.definition import canonical
from toolmason.errors import Abort

Progress = Callable[[float, float | None, str | None], Awaitable[None]]

ROUNDS: Final = 32
"""How often a server may ask within one request."""
AT_ONCE: Final = 8
"""How many questions of a connection are before the application at once; the others wait for their turn."""
STATE_ONLY_SECONDS: Final = 0.1
"""How long we wait where a server asks nothing and only wants to be called again."""
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_OFFERED: Final = ("elicitation", "sampling", "roots", "experimental", "extensions")
OWN: Final[Mapping[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""What a server is told that we can, of what the application answers itself."""
_CAPABILITY: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_ANY: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class Passages:
    """The requests that are under way on one connection, and for whom."""

    def __init__(self, own: frozenset[str] = frozenset()) -> None:
        self.own = own
        """What the application answers itself, by the names of the capabilities."""
        self.level: str | None = None
        """The least level that a server with sessions was told to log at."""
        self._open: dict[Passage | None, int] = {}
        self._questions = 0
        self.turns = asyncio.Semaphore(AT_ONCE)

    def admit(self) -> bool:
        """Take note of a question, and tell whether it may be asked: so many for each request that is under way."""
        self._questions += 1
        return self._questions <= ROUNDS * max(1, sum(self._open.values()))

    def opened(self, relay: Relay | None) -> Opened:
        """Take note of a request, for as long as the block lasts."""
        return Opened(self, None if relay is None else Passage(relay, self.own))

    def add(self, passage: Passage | None) -> None:
        """Take note of a request."""
        if not self._open:
            self._questions = 0
        self._open[passage] = self._open.get(passage, 0) + 1

    def remove(self, passage: Passage | None) -> None:
        """Take note of its end."""
        self._open[passage] -= 1
        self._questions = max(0, self._questions - ROUNDS)
        if not self._open[passage]:
            del self._open[passage]
        if passage is not None:
            passage.over.set()

    @property
    def current(self) -> Passage | None:
        """The request to which what has just come in belongs.

        Over HTTP the SDK tells by the stream it came on. On other transports only one that is alone can be told.
        """
        known = _CURRENT.get()
        if known is not None:
            return known
        return next(iter(self._open)) if len(self._open) == 1 else None

    def heard(self, params: Any) -> None:
        """Take a log record of the server."""
        if (passage := self.current) is not None:
            passage.tell(params.model_dump(by_alias=True, mode="json", exclude_none=True))


class Opened:
    """A request that is under way; not made with `contextmanager`, which costs a call as much as the rest of this."""

    __slots__ = ("_all", "_before", "_passage")

    def __init__(self, passages: Passages, passage: Passage | None) -> None:
        self._all, self._passage = passages, passage

    def __enter__(self) -> Passage | None:
        self._all.add(self._passage)
        self._before = _CURRENT.set(self._passage)
        return self._passage

    def __exit__(self, *exception: object) -> None:
        _CURRENT.reset(self._before)
        self._all.remove(self._passage)


class Passage:
    """One request on behalf of a client."""

    def __init__(self, relay: Relay, own: frozenset[str] = frozenset()) -> None:
        self.relay, self.own = relay, own
        self.over = asyncio.Event()
        self.about = ""
        """Which request it is, whatever round."""
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked = 0
        self._answers: dict[str, Any] | None = None

    def tell(self, record: Mapping[str, Any]) -> None:
        """Pass a log record on, where the client wants to hear of it."""
        least, level = self.relay.log_level, record.get("level")
        if least in LEVELS and level in LEVELS and LEVELS.index(level) >= LEVELS.index(least):
            self.relay.put("notifications/message", record)

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Pass on a question that a server asks in the midst of a call.

        A client of the stateless era is answered with it, which ends the call; the next one asks the same again, in
        the same order, and finds the answers.

        Raises:
            MCPError: there is no answer.
        """
        self._asked += 1
        key = f"{method.partition('/')[0]}-{self._asked}"
        if self._answers is None:
            self._answers, _ = self.relay.resumed(self.about)
        if isinstance(known := self._answers.get(key), Mapping):
            return known
        question: dict[str, Any] = {"method": method} if params is None else {"method": method, "params": params}
        try:
            found = (await self.relay.forward(self.about, {key: question}, None)).get(key)
        except Abort as stop:
            if not getattr(stop, "capability", None):
                await self._stop(stop)
            raise MCPError(INVALID_REQUEST, str(stop)) from None
        if not isinstance(found, Mapping):
            raise MCPError(INVALID_REQUEST, "the client gave no answer")
        return found

    async def _stop(self, stop: Abort) -> None:
        if not self.stopped.done():
            self.stopped.set_exception(stop)
        # The server must not take our silence for a no and go on: it hears that the call is off, and then this.
        await self.over.wait()

    async def run(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Wait for an answer, or for a question that ends the call."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self.stopped), return_when=asyncio.FIRST_COMPLETED)
            if self.stopped.done():
                self.stopped.result()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,), timeout=1.0)
            self.stopped.cancel()


_CURRENT: ContextVar[Passage | None] = ContextVar("toolmason_passage", default=None)


class _Params(RequestParams):
    model_config = ConfigDict(extra="allow")


class _Capabilities(dict[str, Any]):
    """The `_meta` of a request whose capabilities are those of the client it is made for.

    The SDK writes its own into every request; a server that believed them would ask what nobody can answer.
    """

    @override
    def __setitem__(self, key: str, value: Any) -> None:
        if key != CLIENT_CAPABILITIES_META_KEY:
            super().__setitem__(key, value)


class _Passed(Request[_Params, str]):
    method: str
    params: _Params

    @override
    def model_dump(self, *args: Any, **how: Any) -> dict[str, Any]:
        data = super().model_dump(*args, **how)
        meta = data["params"].get("_meta") or {}
        if CLIENT_CAPABILITIES_META_KEY in meta:
            data["params"]["_meta"] = _Capabilities(meta)
        return data


async def passed(
    client: Any,
    passage: Passage,
    request: tuple[str, Mapping[str, Any]],
    progress: Progress | None = None,
    level: Passages | None = None,
) -> dict[str, Any]:
    """Return the answer to a request that is made for somebody else, as the wire has it.

    Raises:
        Abort: it has to end for an answer, or nobody can give one.
        MCPError: the server refused it.
    """
    method, params = request
    relay, meta = passage.relay, dict(params.get("_meta") or {})
    passage.about = about = about_of(method, params)
    if client.protocol_version < "2026":
        await _set_level(client, relay, level)
        found = await passage.run(sent(client, method, {**params, "_meta": meta}, progress))
        relay.answered(method, _name_in(params), found)
        return found
    if (task := relay.begun(about)) is not None:
        return dict(task)
    known = {key: relay.capabilities[key] for key in _OFFERED if key in relay.capabilities}
    meta[CLIENT_CAPABILITIES_META_KEY] = {**known, **{key: OWN[key] for key in passage.own}}
    if relay.log_level is not None:
        meta[LOG_LEVEL_META_KEY] = relay.log_level
    answers, state = relay.resumed(about)
    for _ in range(ROUNDS):
        rounds = {"inputResponses": answers or None, "requestState": state}
        given = {key: value for key, value in rounds.items() if value is not None}
        found = await sent(client, method, {**params, **given, "_meta": meta}, progress)
        if found.get("resultType") != "input_required":
            relay.answered(method, _name_in(params), found)
            return found
        questions, state = found.get("inputRequests") or {}, found.get("requestState")
        if questions:
            # The client first: it may have to end the call for its answers, and ours would be asked for again.
            theirs, ours = parted(questions, passage.own)
            told = dict(await relay.forward(about, theirs, state)) if theirs else {}
            before = answers if state is None else {}
            answers = {**before, **told, **await answered_here(client.session, ours)}
        else:
            answers = {}
            await asyncio.sleep(STATE_ONLY_SECONDS)
    raise MCPError(INVALID_REQUEST, f"the server still asks after {ROUNDS} rounds")


def parted(questions: Mapping[str, Any], own: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the questions for whoever called, and those that the application answers itself."""
    parts: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for key, question in questions.items():
        method = question.get("method") if isinstance(question, Mapping) else None
        parts[_CAPABILITY.get(str(method), "") in own][key] = question
    return parts


async def answered_here(session: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the application answers, by the keys of the questions.

    Raises:
        MCPError: there is no answer.
    """
    from mcp.client.session import ClientRequestContext  # noqa: PLC0415 - only for servers that ask
    from mcp_types import ErrorData, InputRequest  # noqa: PLC0415 - as above

    adapter: TypeAdapter[Any] = TypeAdapter(InputRequest)
    answers: dict[str, Any] = {}
    for key, raw in questions.items():
        about = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(about, adapter.validate_python(raw, by_name=False))
        if isinstance(answer, ErrorData):
            raise MCPError(answer.code, answer.message)
        answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    return answers


def about_of(method: str, params: Mapping[str, Any]) -> str:
    """Return what tells one request of a call from another, in every round of it."""
    known = {key: value for key, value in params.items() if key != "_meta"}
    return hashlib.sha256(to_json([method, canonical(known)])).hexdigest()[:16]


def _name_in(params: Mapping[str, Any]) -> str:
    return str(params.get("name", params.get("uri", "")))


async def sent(client: Any, method: str, params: Mapping[str, Any], progress: Progress | None = None) -> dict[str, Any]:
    """Send a request as it is, and return the answer as it is."""
    request = _Passed(method=method, params=_Params.model_validate(params))
    try:
        found: dict[str, Any] = await client.session.send_request(request, _ANY, progress_callback=progress)
    except MCPError as error:
        if error.code != HEADER_MISMATCH or method != "tools/call":
            raise
        # A new connection does not know yet which arguments are mirrored in headers.
        await client.session.list_tools()
        found = await client.session.send_request(request, _ANY, progress_callback=progress)
    return found


async def _set_level(client: Any, relay: Relay, level: Passages | None) -> None:
    """Have a server with sessions log as much as the client wants to hear."""
    can, least = client.server_capabilities, relay.log_level
    if level is None or least not in LEVELS or can is None or can.logging is None:
        return
    if level.level is None or LEVELS.index(least) < LEVELS.index(level.level):
        level.level = least
        params = _Params.model_validate({"level": least})
        with contextlib.suppress(MCPError):
            await client.session.send_request(_Passed(method="logging/setLevel", params=params), _ANY)
