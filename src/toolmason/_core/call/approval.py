"""Decide whether a call may run, and sign requests and decisions so that they cannot be forged or reused.

Every path to a tool passes this check.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

from pydantic_core import from_json, to_json, to_jsonable_python

from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.values.definition import ToolOptions, canonicalize
from toolmason._core.values.remembered_decisions import DecisionStore, MemoryDecisions, Remember, RememberedDecision
from toolmason._value import Value
from toolmason.errors import ApprovalDenied, ConfigError, clip

_log = logging.getLogger("toolmason")

MAX_EDIT_ROUNDS: Final = 5
"""Maximum number of times one call may be edited and checked again before it is denied."""

REQUEST_SECONDS: Final = 7 * 24 * 3600.0
"""Seconds until a request expires, unless the setting `approval_seconds` says otherwise."""

MAX_USED_DECISIONS: Final = 100_000
"""Number of used decisions that a process remembers."""

ApprovalRule: TypeAlias = Literal["destructive", "writes", "all"] | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Allow(Value):
    """Allow the call to run unchanged. With `remember`, later calls are allowed as well."""

    remember: Remember | None = None
    """Later calls that need no decision: all of this tool, those with equal arguments, those in this conversation."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Deny(Value):
    """Deny the call. The model sees the reason. With `remember`, later calls are denied as well."""

    reason: str = ""
    remember: Remember | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Edit(Value):
    """Allow the call with other arguments, which are validated and checked again."""

    arguments: Mapping[str, Any]


ApprovalVerdict: TypeAlias = Allow | Deny | Edit
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ApprovalRequest(Value):
    """Call that is waiting for a decision. Converts to and from plain JSON, so that it can wait for days."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    id: str
    """Unique ID. A decision is valid for one request, once."""
    call_id: str
    tool: str
    digest: str
    """Digest of the tool's definition and of values that an override hides. A changed tool needs a new decision."""
    arguments: Mapping[str, Any]
    preview: str | None = None
    """Text from the tool's `preview` function that describes the effect of the call."""
    effects: tuple[str, ...] = ()
    identity: str | None = None
    """Identity the call is made for: the context's `user`, `tenant` and `session_id`."""
    expires: float | None = None
    """Expiry time, in seconds since the epoch."""
    issued: float = 0.0
    """Time of the request, in seconds since the epoch."""
    reason: str = ""
    """Why the tool is not trusted, and how to trust it; empty if it is trusted."""
    signature: str = ""
    delegates: tuple[str, ...] = ()
    """Names of the chats, called as tools, that lead to the call, outermost first."""
    origins: tuple[str, ...] = ()
    """Origins of the results in the conversation before the call, such as `web`."""
    conversation: str | None = None
    """Conversation or session that the call belongs to."""

    @property
    def path(self) -> str:
        """Name of the tool after those of the chats that lead to it, such as `research / pay`."""
        return " / ".join((*self.delegates, self.tool))

    def to_dict(self) -> dict[str, Any]:
        """Return the request as plain JSON data."""
        lists = {"effects": list(self.effects), "delegates": list(self.delegates), "origins": list(self.origins)}
        return {**asdict(self), "arguments": dict(self.arguments), **lists}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ApprovalRequest:
        """Restore a request from the data of `to_dict`.

        Raises:
            ApprovalDenied: the data is not a valid request.
        """
        return _parse(cls, data, "request")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Decision(Value):
    """Signed verdict on one request. Converts to and from plain JSON."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}
    request: ApprovalRequest
    verdict: Literal["allow", "deny", "edit"]
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    signature: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as plain JSON data."""
        edited = None if self.arguments is None else dict(self.arguments)
        own_fields = {"verdict": self.verdict, "reason": self.reason, "arguments": edited, "signature": self.signature}
        return {"request": self.request.to_dict(), **own_fields}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Decision:
        """Restore a decision from the data of `to_dict`.

        Raises:
            ApprovalDenied: the data is not a valid decision.
        """
        return _parse(cls, data, "decision")


def _parse(value_type: type[_T], data: Any, label: str) -> _T:
    """Validate untrusted JSON data."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - slow to load, and needed only for stored requests

    try:
        return TypeAdapter(value_type).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "top level"
        tool = data.get("tool") if isinstance(data, Mapping) else None
        reason = f"the {label} is invalid: {where}: {first['msg']}"
        raise ApprovalDenied(clip(tool) if isinstance(tool, str) else "the call", reason) from None


Approver: TypeAlias = Callable[[ApprovalRequest], ApprovalVerdict | Awaitable[ApprovalVerdict]]


class UsedTokens:
    """Tokens that are valid once, and were used. Bounded: tokens that are older than a forgotten one are refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: OrderedDict[str, tuple[float, float, str]] = OrderedDict()
        """Issue and expiry time of each token, and its user."""
        self._issued_until = -1.0
        """Issue time of the newest forgotten token that has not expired."""

    async def use(
        self, token: str, issued: float, expires: float, ledger: TokenLedger | None, user: str = ""
    ) -> Literal["used", "forgotten"] | None:
        """Record a token as used, also in the record that processes share. Return what `add` does.

        Raises:
            OSError: that record cannot be written. The token is still valid.
        """
        if (found := self.add(token, issued, expires, user)) is not None or ledger is None:
            return found
        try:
            return None if await asyncio.to_thread(ledger.add, token, expires, user) else "used"
        except OSError:
            with self._lock:
                self._times.pop(token, None)
            raise

    def add(self, token: str, issued: float, expires: float, user: str = "") -> Literal["used", "forgotten"] | None:
        """Record a token as used. Return why that is impossible, or None: it was used, or is too old to tell.

        A journaled run, `user`, may use its token again.
        """
        now = time.time()
        with self._lock:
            if token in self._times:
                return None if user and self._times[token][2] == user else "used"
            if issued <= self._issued_until:
                return "forgotten"
            self._times[token] = issued, expires, user
            while len(self._times) > 1:
                oldest, (oldest_issued, oldest_expires, _) = next(iter(self._times.items()))
                is_expired = oldest_expires < now
                if not is_expired and len(self._times) <= MAX_USED_DECISIONS:
                    break
                del self._times[oldest]
                if not is_expired:
                    self._issued_until = max(self._issued_until, oldest_issued)
        return None

    def __len__(self) -> int:
        return len(self._times)


USED_DECISIONS: Final = UsedTokens()
"""Decisions by signature, which is unique across keys."""
DECISION_USER: Final = ContextVar("DECISION_USER", default="")
"""Journaled run that uses a decision. It may use it again after a crash: the journal decides what is repeated."""


class TokenLedger(Protocol):
    """Record of used tokens that processes share."""

    def add(self, token: str, expires: float, user: str = "") -> bool:
        """Record a token as used. Return False if it was used before, unless by the same journaled run `user`.

        Raises:
            OSError: the record cannot be written.
        """
        ...


@dataclass(slots=True, eq=False, repr=False)
class ApprovalSigner:
    """Signs requests and decisions, and rejects decisions that were used."""

    key: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    ledger: TokenLedger | None = None
    """Record of what other processes with this key have used; None if no other process has it."""
    store: DecisionStore = field(default_factory=MemoryDecisions)
    """Decisions that hold for later calls."""

    def sign(self, *parts: Any) -> str:
        """Return a signature over JSON data."""
        import hmac  # noqa: PLC0415 - 5 ms at start-up, needed only with approvals

        data = to_json(canonicalize(to_jsonable_python(parts)))
        return hmac.new(self.key, data, "sha256").hexdigest()

    def sign_request(self, request: ApprovalRequest) -> ApprovalRequest:
        """Return a request with its signature."""
        return replace(request, signature=self.sign("request", _without_signature(request)))

    def sign_decision(self, request: ApprovalRequest, verdict: ApprovalVerdict) -> Decision:
        """Return a signed decision on a request.

        Raises:
            ApprovalDenied: the request was not signed with this key.
        """
        self._check_request(request)
        decision = Decision(request, *_split_verdict(verdict))
        return replace(decision, signature=self._compute_signature(decision))

    def make_digest(self, tool: Tool, view: Any) -> str:
        """Return a digest of a tool's definition, and of the values that overrides give to hidden arguments."""
        fixed: list[str] = []
        while view is not None:
            view, (changes, *_) = view
            fixed.append(changes.decode())
        return self.sign("tool", tool.definition.digest, fixed) if fixed else tool.definition.digest

    async def consume(
        self, decision: Decision, tool: Tool, digest: str, arguments: Any, identity: str | None
    ) -> ApprovalVerdict:
        """Verify a decision against its call, mark it as used, and return its verdict.

        Raises:
            ApprovalDenied: the decision is forged, modified, used, expired or for another call; the message says which.
        """
        request = decision.request
        self._check_decision(decision)
        expires = request.issued + REQUEST_SECONDS if request.expires is None else request.expires
        if time.time() > expires:
            raise ApprovalDenied(request.tool, "the request has expired")
        if (digest, get_effects(tool.options)) != (request.digest, request.effects):
            raise ApprovalDenied(request.tool, "the tool has changed since it was approved")
        if identity != request.identity:
            raise ApprovalDenied(request.tool, "it was approved for another identity")
        if request.tool != tool.name or canonicalize(dict(request.arguments)) != canonicalize(arguments):
            raise ApprovalDenied(request.tool, "it was approved for another call")
        await self._mark_used(request, expires)
        return _to_verdict(decision)

    async def _mark_used(self, request: ApprovalRequest, expires: float) -> None:
        token = (request.signature, request.issued, expires)
        try:
            found = await USED_DECISIONS.use(*token, self.ledger, DECISION_USER.get())
        except OSError as error:
            reason = f"its use cannot be recorded: {error}. Set approvals_file= to another file"
            raise ApprovalDenied(request.tool, reason) from error
        if found == "forgotten":
            raise ApprovalDenied(request.tool, "the request is too old: its decision may have been used")
        if found is not None:
            raise ApprovalDenied(request.tool, "the decision was already used")

    def remember(self, request: ApprovalRequest, verdict: ApprovalVerdict, approver: str = "") -> None:
        """Keep a decision for later calls, if the verdict says so. A store that fails is logged: the call is decided.

        Raises:
            ConfigError: the value of `remember` is unknown, or the call belongs to no conversation.
        """
        if isinstance(verdict, Edit) or (scope := verdict.remember) is None:
            return
        if scope not in get_args(Remember):
            raise ConfigError(f"remember={clip(repr(scope))}: must be 'tool', 'arguments' or 'conversation'.")
        if scope == "conversation" and request.conversation is None:
            raise ConfigError("remember='conversation': the call belongs to none. Pass `conversation=` to `send`.")
        kind: Literal["allow", "deny"] = "allow" if isinstance(verdict, Allow) else "deny"
        arguments = dict(request.arguments) if scope == "arguments" else None
        conversation = request.conversation if scope == "conversation" else None
        binding = (scope, request.tool, request.digest, _get_user(request.identity), arguments, conversation)
        found = RememberedDecision(
            self.sign("binding", (*binding, approver, request.effects))[:24],
            kind,
            *binding,
            verdict.reason if isinstance(verdict, Deny) else "",
            approver,
            time.time(),
            effects=request.effects,
        )
        try:
            self.store.save(replace(found, signature=self._sign_remembered(found)).to_dict())
        except OSError as error:
            _log.warning("a decision about %s cannot be remembered: %s", request.tool, error)

    def find_remembered(self, request: ApprovalRequest, approver: str = "") -> Allow | Deny | None:
        """Return the verdict on a call from earlier decisions, or None if it must be asked. A denial comes first."""
        found = [
            each
            for each in self.load_remembered(request.tool)
            if (each.digest, each.effects, each.identity, each.approver)
            == (request.digest, request.effects, _get_user(request.identity), approver)
            and (each.scope != "conversation" or each.conversation == request.conversation)
            and (each.scope != "arguments" or canonicalize(each.arguments) == canonicalize(dict(request.arguments)))
        ]
        if denied := next((each for each in found if each.verdict == "deny"), None):
            return Deny(denied.reason)
        return Allow() if found else None

    def load_remembered(self, tool: str | None = None) -> list[RememberedDecision]:
        """Return the decisions about a tool, or all, oldest first. Those that are forged or damaged are left out."""
        try:
            data = [*self.store.load(tool)]
        except OSError as error:
            _log.warning("remembered decisions cannot be read: %s", error)
            return []
        found: list[RememberedDecision] = []
        for item in data:
            with suppress(ApprovalDenied):
                decision = _parse(RememberedDecision, item, "remembered decision")
                if _digests_match(self._sign_remembered(decision), decision.signature):
                    found.append(decision)
        return sorted(found, key=lambda decision: decision.created)

    def _sign_remembered(self, decision: RememberedDecision) -> str:
        return self.sign("remembered", {**decision.to_dict(), "signature": ""})

    def verify(self, decision: Decision) -> bool:
        """Return True if a decision and its request carry valid signatures."""
        try:
            self._check_decision(decision)
        except ApprovalDenied:
            return False
        return True

    def _check_decision(self, decision: Decision) -> None:
        self._check_request(decision.request)
        if not _digests_match(self._compute_signature(decision), decision.signature):
            raise ApprovalDenied(decision.request.tool, "the decision was changed after it was signed")

    def _compute_signature(self, decision: Decision) -> str:
        parts = (decision.verdict, decision.reason, decision.arguments)
        return self.sign("decision", decision.request.signature, *parts)

    def _check_request(self, request: ApprovalRequest) -> None:
        if not _digests_match(self.sign("request", _without_signature(request)), request.signature):
            raise ApprovalDenied(request.tool, "the request was changed, or was signed with another approval_key")


def _get_user(identity: str | None) -> str | None:
    """Return the identity of a request without its session: a remembered decision holds in others as well."""
    named = {} if identity is None else {k: v for k, v in from_json(identity).items() if k != "session_id"}
    return to_json(named).decode() if named else None


def _digests_match(expected: str, given: str) -> bool:
    from hmac import compare_digest  # noqa: PLC0415 - as above

    return compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def _without_signature(request: ApprovalRequest) -> Mapping[str, Any]:
    return {name: getattr(request, name) for name in request.__slots__ if name != "signature"}


def _split_verdict(verdict: Any) -> tuple[Literal["allow", "deny", "edit"], str, Mapping[str, Any] | None]:
    match verdict:
        case Allow():
            return "allow", "", None
        case Deny():
            return "deny", verdict.reason, None
        case Edit(arguments):
            return "edit", "", dict(arguments)
        case _:
            raise ConfigError(f"verdict={clip(repr(verdict))}: must be Allow(), Deny(reason) or Edit(arguments).")


def _to_verdict(decision: Decision) -> ApprovalVerdict:
    if decision.verdict == "allow":
        return Allow()
    return Deny(decision.reason) if decision.verdict == "deny" else Edit(decision.arguments or {})


# --- the rule ----------------------------------------------------------------------------------


def get_effects(options: ToolOptions) -> tuple[str, ...]:
    """Return the names of the effects that a tool declares. A decision holds only for a tool that declares the same."""
    return tuple(name for name in ("read_only", "destructive", "idempotent", "open_world") if getattr(options, name))


def rule_requires_approval(rule: ApprovalRule, options: ToolOptions) -> bool:
    """Return True if a toolbox's rule requires approval for a tool with these effects."""
    if rule is None or options.skip_permission:
        return False
    if rule == "all":
        return True
    return bool(options.destructive) if rule == "destructive" else not options.read_only


def get_identity(context: ToolContext[Any]) -> str | None:
    """Return the identity a call is made for, or None if the context has none."""
    # User 1 is not user "1", and None is not "None".
    identity = {
        name: value if isinstance(value := context[name], str | int | None) else str(value)
        for name in ("tenant", "user", "session_id")
        if name in context
    }
    return to_json(identity).decode() if identity else None


def parse_key(option: str, value: str | bytes | None) -> bytes | None:
    """Return the bytes of a signing key.

    Raises:
        ConfigError: the key is too short to be a secret.
    """
    if value is None:
        return None
    key = value.encode() if isinstance(value, str) else value
    if len(key) < 16:  # noqa: PLR2004 - 128 bits
        raise ConfigError(f"{option} has {len(key)} bytes. Use at least 16, from a secret store.")
    return key
