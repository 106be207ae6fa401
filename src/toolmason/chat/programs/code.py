"""Define the option `code=` of a chat: the limits of the programs that a model writes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError

PROGRAM_MODEL: Final = "program"
"""Name of the model of a run that is a program. Its turns are not those of a model."""
PROGRAM_FAILED: Final = "program_failed"
"""Reason why a program ended that raised an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Limits of each program that a model writes, with `Chat(code=...)`."""

    calls: int = 100
    """Maximum number of calls of tools. They also count for the limits of the run."""
    seconds: float = 300.0
    """Maximum duration with the calls, but without the time that it waits for approval."""
    cpu_seconds: float = 5.0
    """Maximum time that the sandbox computes."""
    memory_bytes: int = 64 * 1024 * 1024
    """Maximum memory of the sandbox."""
    output_chars: int = 32 * 1024
    """Maximum length of the output, in characters."""

    @explain_arguments
    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"Code({name}={getattr(self, name)!r}): must be greater than 0.")


def parse_code(value: Code | bool, search: Any, execute: Any) -> Code | None:  # noqa: FBT001 - the value of an option
    """Parse the value of `Chat(code=...)`, with those of `search=` and `execute=`.

    Raises:
        ConfigError: the value is not True, False or a `Code`, or does not go with another option.
        ImportError: the sandbox is not installed.
    """
    given: Any = value
    if not isinstance(given, bool | Code):
        raise ConfigError(f"code={given!r}: must be True, False or a `Code(...)`.")
    if not value:
        return None
    if search is not None:
        raise ConfigError("code= and search= cannot be combined. A program sees the signatures of all tools.")
    if execute is False:
        raise ConfigError("code= needs a chat that runs the calls of a program. Omit `execute=False`.")
    if find_spec("pydantic_monty") is None:
        raise ImportError("Programs of a model need a sandbox: pip install 'toolmason[code]'")
    return value if isinstance(value, Code) else Code()


def count_turns(model: str, turns: int) -> int:
    """Return the number of turns of a run that count as steps: none if its model is a program."""
    return 0 if model == PROGRAM_MODEL else turns
