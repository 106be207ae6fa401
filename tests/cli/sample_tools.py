"""An application to call, the command's surroundings, and a terminal around it.

Lives here: what the fixtures beside this file hand out. Not here: any test.
"""

import os
import pty
import re
import select
import sys
import termios
import time
from pathlib import Path

from fork_server import COMMAND, ForkServer

BIN = Path(sys.executable).parent
LISTENING = [
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
    COMMAND,
]
"""The command, which hears Ctrl-C also where the tests run in the background, and do not."""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

OFFICE = '''
import threading
from typing import Annotated, Literal

from toolmason import Toolbox, ToolContext, tool


@tool(read_only=True)
def get_weather(city: Annotated[str, "City name"], unit: Literal["C", "F"] = "C", loud: bool = False) -> str:
    """Current weather in a city."""
    return f"21 {unit} and sunny in {city}" + ("!" if loud else "")


@tool(destructive=True, approval=True, preview=lambda arguments: f"Would drop {arguments['table']}.")
def drop(table: str, force: bool = False) -> dict:
    """Drop a table."""
    return {"dropped": table, "force": force}


@tool(approval=True)
def wipe(folder: str, depth: int = 1) -> str:
    """Wipe a folder."""
    return f"wiped {folder} {depth}"


@tool(approval=lambda arguments, context: arguments["amount"] > 100)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def work(ctx: ToolContext, steps: int = 3, message: str = "counting") -> str:
    """Report progress."""
    for step in range(steps):
        ctx.progress(step + 1, steps, message)
        threading.Event().wait(0.3)
    return "worked"


@tool
def odd(ctx: ToolContext, kind: str) -> str:
    """Report what is no progress."""
    values = {"nan": (float("nan"), float("inf")), "text": ("a", "b"), "huge": (10**400, -5)}
    ctx.progress(*values[kind], message=5)
    threading.Event().wait(0.3)
    return "odd"


@tool
async def slow() -> None:
    """Never end."""
    import asyncio

    print("started", flush=True)
    await asyncio.Event().wait()


@tool
def stuck() -> None:
    """Never end, in a thread."""
    print("started", flush=True)
    threading.Event().wait()


@tool
def painted() -> str:
    """Try to steer the terminal."""
    return "\\x1b[31mred\\x1b[0m [bold]plain[/bold] \\x07:smile:"


@tool
def record() -> dict:
    """Give an object."""
    return {"name": "Ada", "ids": [1, 2]}


box = Toolbox(get_weather, drop, wipe, pay, work, slow, stuck, painted, record, odd)
'''


def environment(**more: str) -> dict[str, str]:
    dropped = ("NO_COLOR", "FORCE_COLOR", "EDITOR", "VISUAL", "TERM", "COLORTERM")
    kept = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith("TOOLMASON_")}
    return {**kept, "PYTHONUTF8": "1", "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **more}


class Terminal:
    """A command in a real terminal: what it shows, what is typed, how it ends."""

    def __init__(
        self, forks: ForkServer, words: list[str], cwd: Path, env: dict[str, str], output: Path | None = None
    ) -> None:
        self._main, side = pty.openpty()
        out = side if output is None else os.open(output, os.O_WRONLY | os.O_CREAT)
        self._process = forks.start(words, (side, out, side), cwd=cwd, env=env, own_terminal=True)
        for place in {side, out}:
            os.close(place)
        self.shown = ""

    def _read(self, until: float) -> bool:
        ready, _, _ = select.select([self._main], [], [], max(0.0, until - time.monotonic()))
        try:
            data = os.read(self._main, 65536) if ready else b""
        except OSError:  # the other side is closed
            data = b""
        self.shown += data.decode("utf-8", "replace")
        return bool(data)

    @property
    def text(self) -> str:
        """What is shown, without escape sequences."""
        return ESCAPE.sub("", self.shown).replace("\r\n", "\n")

    def expect(self, text: str, seconds: float = 30) -> None:
        """Wait until a text is shown."""
        until = time.monotonic() + seconds
        while text not in self.text:
            assert self._read(until), f"{text!r} was not shown. Shown was:\n{self.text}"

    def wait_for(self, path: Path, seconds: float = 30) -> None:
        """Wait until the command, or a program that it has started, has written a file."""
        until = time.monotonic() + seconds
        while not path.exists():
            assert time.monotonic() < until, f"{path.name} was not written. Shown was:\n{self.text}"
            self._read(time.monotonic() + 0.05)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._main, f"{text}\n".encode())

    def press(self, code: int) -> None:
        """Press a control key."""
        os.write(self._main, bytes([code]))

    def resize(self, columns: int, rows: int = 40) -> None:
        """Change the size of the window, as a user does with the mouse. The program gets a signal."""
        termios.tcsetwinsize(self._main, (rows, columns))

    def interrupt(self, seconds: float = 30) -> int:
        """Press Ctrl-C until the command ends, and return its exit code.

        Python does not see one that comes between its last look for signals and its waiting for a line.
        """
        until = time.monotonic() + seconds
        while self._process.poll() is None:
            assert time.monotonic() < until, f"still running; shown was:\n{self.text}"
            self.press(3)
            patience = time.monotonic() + 1
            while self._process.poll() is None and time.monotonic() < patience:
                self._read(time.monotonic() + 0.1)
        return self.end()

    def interrupt_until(self, text: str) -> None:
        """Press Ctrl-C, and again if it was not seen, until a text is shown; see `interrupt`."""
        for _ in range(5):
            self.press(3)
            until = time.monotonic() + 6
            while text not in self.text and time.monotonic() < until:
                self._read(until)
            if text in self.text:
                return
        raise AssertionError(f"{text!r} was not shown. Shown was:\n{self.text}")

    def end(self, seconds: float = 30) -> int:
        """Wait for the command to end, and return its exit code."""
        until = time.monotonic() + seconds
        while self._read(until):
            pass
        return self._process.wait(max(0.1, until - time.monotonic()))

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        os.close(self._main)
