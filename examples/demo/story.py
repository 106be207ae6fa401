"""Run the commands of `make demo` in a terminal of 80 columns, and type the lines of the chat."""

import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path
from typing import NoReturn

COLUMNS, ROWS = 80, 40
PATIENCE = 60.0
"""Seconds without output after which the demo fails."""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BIN = Path(sys.executable).parent
SHOP = "examples/shop.py:box"

PROMPT, QUESTION = re.compile(r"(^|\n)> $"), re.compile(r"Allow this call\? \[[^]]*\]:? ?$")
CHAT = [
    (PROMPT, "What is the price of 2 TEA-01 and 4 CUP-01?"),
    (PROMPT, "And 5 TEA-02?"),
    (PROMPT, "Cancel order A-17"),
    (QUESTION, "y"),
    (PROMPT, "/quit"),
]
"""Lines to type, and the text that each waits for."""


def main() -> int:
    """Run the demo, and return the exit code."""
    say("A shop has three typed Python functions as tools:")
    show("toolmason list examples/shop.py:box")
    say("Find mistakes before a model meets them:")
    show("toolmason check examples/shop.py")
    say("Call a tool. An error says what to do next:")
    show("toolmason call examples/shop.py:box quote_price sku=TEA-01 quantity=3")
    show("toolmason call examples/shop.py:box quote_price sku=TEA-99", code=1)
    say(
        "Let a model call them: 135 million parameters, on this CPU, without a key.\n"
        "Cancelling is marked as destructive, so the chat asks; the demo answers yes."
    )
    show("toolmason chat examples/shop.py:box --model local", CHAT)
    say("Serve them over MCP, to a client of the official SDK:")
    show("python examples/demo/mcp_client.py")
    say("Next:")
    command = f"{os.path.relpath(BIN)}/toolmason"
    for line, text in (
        (f"{command} chat {SHOP} --model local", "your turn"),
        (f"{command} ui {SHOP} --open", "as a page"),
        (f"{command} new my-tools", "a project"),
        ("docs/first-steps.md", "read on"),
    ):
        print(f"  {line:64} # {text}")
    return 0


def say(text: str) -> None:
    """Print a sentence between two commands."""
    print(f"\n\033[1m{text}\033[0m" if is_drawn() else f"\n{text}", flush=True)


def is_drawn() -> bool:
    """Return True if escape sequences are shown as colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def show(line: str, typed: list[tuple[re.Pattern[str], str]] | None = None, code: int = 0) -> None:
    """Run a command in a terminal of its own, copy its output, and type lines when their prompts appear."""
    print(f"$ {line}", flush=True)
    main_side, side = pty.openpty()
    ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    if not is_drawn():
        environment |= {"NO_COLOR": "1", "TERM": "dumb"}
    words = line.split()
    words[0] = str(BIN / words[0])
    with subprocess.Popen(  # noqa: S603 - the commands are written here
        words, stdin=side, stdout=side, stderr=side, env=environment, start_new_session=True
    ) as process:
        os.close(side)
        try:
            follow(main_side, list(typed or ()))
            ended = process.wait(PATIENCE)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            os.close(main_side)
    if ended != code:
        fail(f"`{line}` ended with the exit code {ended}, not {code}.")


def follow(terminal: int, typed: list[tuple[re.Pattern[str], str]]) -> None:
    """Copy the output of a terminal until it ends."""
    shown = ""
    while True:
        ready, _, _ = select.select([terminal], [], [], PATIENCE)
        if not ready:
            fail(f"No output for {PATIENCE:g} seconds.")
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the command has closed its side
            return
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        sys.stdout.write(text)
        sys.stdout.flush()
        shown += ESCAPE.sub("", text)
        if typed and typed[0][0].search(shown):
            shown = ""
            type_line(terminal, typed.pop(0)[1])


def type_line(terminal: int, text: str) -> None:
    """Type a line, at the speed of a person if a person watches."""
    for character in f"{text}\n":
        if sys.stdout.isatty():
            time.sleep(0.03)
        os.write(terminal, character.encode())


def fail(text: str) -> NoReturn:
    """End the demo with a reason."""
    sys.exit(f"\nThe demo failed. {text}")


if __name__ == "__main__":
    if shutil.which("toolmason", path=str(BIN)) is None:
        fail("Run it with `make demo`, which installs what it needs.")
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
