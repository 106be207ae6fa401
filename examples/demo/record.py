"""Run the demo in a real terminal, and draw its screen as an SVG file in which the lines appear one after another."""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

COLUMNS, ROWS = 80, 40
LONGEST_WAIT = 1.0
"""Seconds to which the recording shortens a wait."""
FONT, CHARACTER, LINE, MARGIN = 12, 7.25, 16, 16
TOKEN = re.compile(r"\x1b\[(?P<numbers>[0-9;?]*)(?P<letter>[A-Za-z])|(?P<text>[^\x1b\r\n\x07]+)|\r|\n|.", re.DOTALL)
COLORS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea"}
STYLE = """
text { font: 12px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #c9d1d9;
       white-space: pre; animation: appear 0.01s backwards; }
.bold { font-weight: bold; fill: #ffffff; }
.typed { fill: #ffffff; }
@keyframes appear { from { opacity: 0; } }
@media (prefers-reduced-motion: reduce) { text { animation: none; } }
"""


class Screen:
    """Lines of a terminal with their colours, and the time at which each was finished."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[str, str]]] = [[]]
        self.times = [0.0]
        self.column = 0
        self.style = ""

    def feed(self, text: str, now: float) -> None:
        """Write text that a program has printed."""
        for token in TOKEN.finditer(text):
            if token["letter"] is not None:
                self._control(token["letter"], token["numbers"])
            elif token["text"] is not None:
                for character in token["text"]:
                    self._put(character, now)
            elif token[0] == "\n":
                self._add_row(now)
            elif token[0] == "\r":
                self.column = 0

    def _put(self, character: str, now: float) -> None:
        if self.column == COLUMNS:
            self._add_row(now)
        row = self.rows[-1]
        row += [(" ", "")] * (self.column - len(row))
        row[self.column : self.column + 1] = [(character, self.style)]
        self.column += 1
        self.times[-1] = now

    def _add_row(self, now: float) -> None:
        self.rows.append([])
        self.times.append(now)
        self.column = 0

    def _control(self, letter: str, numbers: str) -> None:
        if letter == "K":
            del self.rows[-1][self.column :]
        elif letter == "m":
            for number in map(int, filter(str.isdigit, (numbers or "0").split(";"))):
                if number in COLORS:
                    self.style = f'fill="{COLORS[number]}"'
                elif number == 1:
                    self.style = 'class="bold"'
                elif number in (0, 39):
                    self.style = ""


def record(command: list[str]) -> Screen:
    """Run a command in a terminal, and return what it has shown.

    Raises:
        SystemExit: the command failed.
    """
    main_side, side = pty.openpty()
    ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    screen, clock, last = Screen(), 0.0, time.monotonic()
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment) as process:  # noqa: S603 - our own script
        os.close(side)
        pending = b""
        while True:
            try:
                pending += os.read(main_side, 65536)
            except OSError:  # the command has ended
                break
            clock, last = clock + min(time.monotonic() - last, LONGEST_WAIT), time.monotonic()
            text = pending.decode("utf-8", "ignore")
            pending = pending[len(text.encode()) :]
            screen.feed(text, clock)
    os.close(main_side)
    if process.returncode:
        sys.exit(f"{command} ended with the exit code {process.returncode}.")
    return screen


def draw(screen: Screen) -> str:
    """Return the SVG file."""
    rows = [(row, moment) for row, moment in zip(screen.rows, screen.times, strict=True)]
    while rows and not rows[-1][0]:
        rows.pop()
    width, height = round(2 * MARGIN + COLUMNS * CHARACTER), 2 * MARGIN + LINE * len(rows)
    lines = [
        f'<text x="{MARGIN}" y="{MARGIN + LINE * number + FONT}" style="animation-delay:{moment:.1f}s">'
        f"{_draw_row(row)}</text>"
        for number, (row, moment) in enumerate(rows)
        if row
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            "<title>The demo of Toolmason in a terminal: list, check, call, chat with an approval, serve</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
            *lines,
            "</svg>\n",
        ]
    )


def _draw_row(row: list[tuple[str, str]]) -> str:
    line = "".join(character for character, _ in row).rstrip()
    if line.startswith(("$ ", "> ")):
        return f'<tspan class="typed">{escape(line)}</tspan>'
    parts: list[str] = []
    for style, cells in groupby(row[: len(line)], key=lambda cell: cell[1]):
        text = escape("".join(character for character, _ in cells))
        parts.append(f"<tspan {style}>{text}</tspan>" if style else text)
    return "".join(parts)


if __name__ == "__main__":
    shown = draw(record([sys.executable, str(Path(__file__).with_name("story.py"))]))
    if str(Path.cwd()) in shown or str(Path.home()) in shown:
        sys.exit("The recording has a path of this machine in it.")
    Path(sys.argv[1]).write_text(shown, "utf-8")
