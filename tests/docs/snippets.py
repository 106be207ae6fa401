"""A Markdown page → what it shows, run as a reader would run it.

Lives here: finding the fenced blocks of a page, running Python blocks and console blocks in a folder.
Not here: which pages there are (the test beside this file).
"""

import ast
import asyncio
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, ModuleType

from fork_server import COMMAND, ForkServer

FENCE = re.compile(
    r"^ *(?P<fence>`{3,})(?P<language>python|console)\b *(?P<engine>\w*)[^\n]*\n(?P<body>.*?)^ *(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
FILE_NAME = re.compile(r"# (?P<name>[\w./-]+\.py)\s*\Z")
ANYTHING = "..."
NO_ENGINES: Mapping[str, tuple[str, str]] = {}
OF_A_SHELL = re.compile(r"[|&;<>()$`*?~#]")
"""Characters that mean something to a shell outside of quotes."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line of the page where the text starts."""

    language: str
    text: str
    line: int
    engine: str = ""
    """Server that it needs: `temporal` or `postgres`. `make test-scale` runs such blocks."""


@dataclass(frozen=True)
class Command:
    """One command of a console block, and the lines that the page shows below it."""

    text: str
    shown: tuple[str, ...]


def blocks_of(page: str) -> list[Block]:
    """Return the Python and console blocks of a page, in order."""
    return [
        Block(
            found["language"], textwrap.dedent(found["body"]), page.count("\n", 0, found.start()) + 2, found["engine"]
        )
        for found in FENCE.finditer(page)
    ]


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block; a line that ends in a backslash goes on in the next."""
    prompts = re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]
    lines = [prompt.splitlines() for prompt in prompts]
    return [Command(first, tuple(line.strip() for line in rest if line.strip())) for first, *rest in lines]


def missing_lines(shown: Sequence[str], output: str) -> list[str]:
    """Return the shown lines that the output does not hold in that order; `...` stands for anything."""
    actual = iter(output.splitlines())
    return [line for line in shown if line != ANYTHING and not any(line in candidate for candidate in actual)]


def run_page(
    page: Path, folder: Path, forks: ForkServer, addresses: Mapping[str, tuple[str, str]] = NO_ENGINES
) -> None:
    """Run the blocks of a page in order, with one namespace and `folder` as the working directory.

    `addresses` has, for each engine that runs, its address in the page and the one to use instead. Blocks that need
    another engine are left out.

    Raises:
        AssertionError: a command failed, or its output is not what the page shows.
    """
    module = ModuleType(f"page_{page.stem.lower()}")
    # Pydantic and pickle look a class up through the module that it names.
    sys.modules[module.__name__] = module
    try:
        with asyncio.Runner() as runner:
            for block in blocks_of(page.read_text("utf-8")):
                if block.engine and block.engine not in addresses:
                    continue
                shown = replace(block, text=block.text.replace(*addresses.get(block.engine, ("", ""))))
                if block.language == "python":
                    _run_python(shown, page, folder, module, runner)
                else:
                    _run_console(shown, page, folder, forks)
    finally:
        _forget_modules_of(folder)
        del sys.modules[module.__name__]


def _run_python(block: Block, page: Path, folder: Path, module: ModuleType, runner: asyncio.Runner) -> None:
    first, _, _ = block.text.partition("\n")
    if name := FILE_NAME.match(first):
        (folder / name["name"]).parent.mkdir(parents=True, exist_ok=True)
        (folder / name["name"]).write_text(block.text, "utf-8")
        # A later block imports this file, even if another test has left a module of its name, or the finder of imports
        # has read the folder in the same tick of the clock.
        imported = name["name"].removesuffix(".py").replace("/", ".")
        if imported not in _modules_in(folder):
            sys.modules.pop(imported, None)
        importlib.invalidate_caches()
    # The blank lines make a traceback point at the line of the page.
    text = "\n" * (block.line - 1) + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(text, str(page), "exec", flags=flags, dont_inherit=True)
    run = FunctionType(code, vars(module))
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(run())
    else:
        run()


def _run_console(block: Block, page: Path, folder: Path, forks: ForkServer) -> None:
    code = 0
    for command in commands_of(block):
        where = f"{page.name}:{block.line}: $ {command.text}"
        if command.text == "echo $?":
            assert command.shown == (str(code),), f"{where}\nshown {command.shown}, but the exit code is {code}"
            code = 0
        elif command.text.partition(" ")[0] in ("toolmason", "pytest"):
            assert code == 0, f"{where}\nthe command before it ended with exit code {code}"
            code, output = _run_command(command.text, folder, forks)
            missing = missing_lines(command.shown, output)
            assert not missing, f"{where}\nnot in the output: {missing}\nthe output:\n{output}"
    # A command may fail on purpose; the page then shows `$ echo $?` and the code below it.
    assert code == 0, f"{page.name}:{block.line}: the last command ended with exit code {code}"


def _run_command(text: str, folder: Path, forks: ForkServer) -> tuple[int, str]:
    # `python server.py`, and a command in a line for a shell, run in forks, too.
    folders = [str(forks.folder), str(Path(COMMAND).parent)]
    path = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120"}
    if text.startswith("toolmason") and not OF_A_SHELL.search(re.sub(r"'[^']*'", "", text)):
        _, *words = shlex.split(text)
        ended = forks.run([COMMAND, *words], cwd=folder, env=environment, joined=True)
        return ended.returncode, ended.stdout
    # A page may run its tests, or show a line that only a shell understands, with a pipe for example.
    done = subprocess.run(  # noqa: S602 - the line comes from our own page
        text,
        shell=True,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def _forget_modules_of(folder: Path) -> None:
    for name in list(_modules_in(folder)):
        del sys.modules[name]


def _modules_in(folder: Path) -> Iterator[str]:
    inside = f"{folder}{os.sep}"
    for name, module in sys.modules.items():
        # A package without `__init__.py` has folders only.
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(str(place).startswith(inside) for place in places):
            yield name
