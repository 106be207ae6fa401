"""Offer a tool that runs programs in place of the tools that the programs call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from toolmason._core.toolbox.exchange import ModelReply, ModelRequest
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.policy import Limits
from toolmason.chat.loop import ModelTurn, NextStep, SystemAddition
from toolmason.chat.programs.code import Code
from toolmason.chat.programs.stubs import make_stubs
from toolmason.chat.run.spending import Price
from toolmason.chat.tools import RequestTools
from toolmason.errors import ConfigError

RUN_CODE: Final = "run_code"
"""Name of the tool that runs a program."""
_INSTRUCTIONS: Final = """\
The tool `run_code` runs a Python program in a sandbox and returns what it prints, and the value of its last line. The
program may call the functions below, without `await` and without importing them; they raise RuntimeError if they fail.
It has no files, no network and no clock, and few modules: json, re, math, datetime, collections, itertools, functools.
Prefer one program with loops and conditions to many calls, and print only what you need.

```python
{stubs}
```"""


class CodeAdvisor:
    """Shows the model the tool that runs programs, and the signatures of the functions, in place of the tools."""

    def __init__(self, hidden: frozenset[str], instructions: str) -> None:
        self._hidden, self._instructions = hidden, SystemAddition(instructions)

    async def __call__(self, turn: ModelTurn, call_next: NextStep) -> ModelReply:
        """Run a turn without the tools that programs call. The model cannot call them otherwise."""
        request = turn.request
        wanted = () if request.tool_choice is None else request.tool_choice.names
        tools = tuple(tool for tool in request.tools if tool.name not in self._hidden or tool.name in wanted)
        messages = self._instructions.apply(request.messages)
        return await call_next(replace(turn, request=request.with_messages(messages, tools=tools)))


def add_code(settings: Code, request_tools: RequestTools, make_chat: Callable[..., Any]) -> CodeAdvisor | None:
    """Add the tool that runs programs to the tools of a request. Return its advisor, or None if there are no tools.

    A program is the run of a chat whose model is the program: calls, approvals, limits and the journal are those of
    any run that another one delegates to.

    Raises:
        ConfigError: a tool of the toolbox is named like the tool that runs programs.
    """
    box = request_tools.box
    if RUN_CODE in box:
        raise ConfigError(f"A tool is named {RUN_CODE!r}, as the tool that runs programs is. Rename yours.")
    # These end the turn of a model, or continue after it, and have no value for a program.
    direct = {tool.name for tool in box if tool.options.return_direct or tool.options.may_open_ticket}
    definitions = [tool for tool in ModelRequest((), box).tools if tool.name not in direct]
    if not definitions:
        return None
    stubs = make_stubs(definitions)
    from toolmason.chat.programs.program_model import ProgramModel  # noqa: PLC0415 - loads an optional package

    chat = make_chat(
        ProgramModel(settings, stubs),
        box,
        limits=Limits(steps=None, calls=settings.calls, seconds=settings.seconds, per_tool=settings.calls),
        price=Price(0, 0),
    )
    tool = chat.as_tool(RUN_CODE, "Run a Python program that calls functions.", prompt=_make_prompt, read_only=True)
    request_tools.join(Toolbox(tool))
    return CodeAdvisor(
        frozenset(definition.name for definition in definitions),
        _INSTRUCTIONS.format(stubs="\n\n".join(stub.text for stub in stubs.values())),
    )


def _make_prompt(code: str) -> str:
    """Run a program.

    Args:
        code: The program, as Python source.
    """
    return code
