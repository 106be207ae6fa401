"""Result of adapting a tool to a provider: the schema, its losses and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from typing_extensions import override

LossKind: TypeAlias = Literal["unenforced", "unrestricted", "other"]
"""`unenforced`: a constraint is only described to the model. `unrestricted`: the schema allows anything here, which the
provider cannot express. `other`: only `Loss.what` describes it.
"""
Status: TypeAlias = Literal["accepted", "lossy", "rejected"]


@dataclass(frozen=True, slots=True)
class Loss:
    """Constraint that a provider's form of a schema cannot express."""

    path: str
    """JSON path of the parameter, such as `$.items[*].count`."""
    what: str
    """Description of the change."""
    changes_meaning: bool = False
    """True if some valid arguments can no longer be expressed. Otherwise only the provider stops enforcing a
    constraint: the description mentions it, and Toolmason still enforces it.
    """
    kind: LossKind = "other"
    """Category of the loss, for programs; the wording of `what` may change."""
    subject: str = ""
    """The constraint of an `unenforced` loss, such as `` `minLength` ``, or what an `unrestricted` one allows, such as
    `any key`.
    """

    @override
    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class NarrowedSchema(NamedTuple):
    """Schema in the form that one provider accepts."""

    schema: dict[str, Any]
    strict: bool = False
    reason: str = ""
    """Why the schema is not strict; empty if it is."""
    losses: tuple[Loss, ...] = ()
    keys: Mapping[str, str] = MappingProxyType({})
    """Aliases of property names that the provider rejects, mapped to those names."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Assessment of one tool for one provider."""

    provider: str
    tool: str
    narrowed: NarrowedSchema
    alias: str | None = None
    """Name that is sent if the provider rejects the tool's own."""

    @property
    def status(self) -> Status:
        """`accepted`, `lossy` (a constraint is described but not enforced) or `rejected` (the meaning would change)."""
        if any(loss.changes_meaning for loss in self.narrowed.losses):
            return "rejected"
        return "lossy" if self.narrowed.losses else "accepted"
