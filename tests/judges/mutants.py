"""Break the package in one place at a time and check that a test fails: `python tests/judges/mutants.py`.

Each entry of `mutants.toml` is found by its function and its text, not by a line number. If it is not found exactly
once, it is stale: correct its location and keep its name and description, which state the behaviour to protect.
"""

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).with_suffix(".toml")
SECONDS = 120
"""Time limit of the tests of one mutant. A mutant that exceeds it is killed."""
TESTS_FAILED, INTERRUPTED = 1, 2
"""Exit codes of pytest. A module that cannot be imported interrupts it."""
FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Stale(Exception):
    """The entry does not fit the source or the tests."""


@dataclass(frozen=True)
class Mutant:
    """One change of the source that breaks a behaviour, and the tests that must notice."""

    name: str
    description: str
    file: str
    function: str
    before: str
    after: str
    tests: Sequence[str]

    def apply(self, source: str) -> str:
        """Return the source with the change.

        Raises:
            Stale: the text is not exactly once in the function, or the result is not valid Python.
        """
        starts = [0, *accumulate(len(line) + 1 for line in source.split("\n"))]
        pattern = make_pattern(self.before)
        places = [(starts[first - 1], starts[last]) for first, last in find_functions(ast.parse(source), self.function)]
        spans = [match.span() for place in places for match in pattern.finditer(source, *place)]
        if len(spans) != 1:
            raise Stale(f"the text is {len(spans)} times in {self.function} of {self.file}")
        [(start, end)] = spans
        changed = source[:start] + self.after + source[end:]
        try:
            ast.parse(changed)
        except SyntaxError as error:
            raise Stale(f"the changed source is not valid: {error}") from None
        return changed


@dataclass(frozen=True)
class Outcome:
    """Outcome of one mutant: killed, survived or stale, the reason, and the test that failed."""

    status: str
    reason: str
    test: str = ""


def make_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern for a piece of source, regardless of line breaks and spaces."""
    tokens = re.findall(r"(\w+)|([^\w\s])", text)
    return re.compile(r"\s*".join(rf"\b{word}\b" if word else re.escape(sign) for word, sign in tokens))


def find_functions(node: ast.AST, name: str, prefix: str = "") -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each function with a qualified name, such as `Toolbox.call`."""
    for child in ast.iter_child_nodes(node):
        path = prefix
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            path = f"{prefix}{child.name}."
            if path == f"{name}." and not isinstance(child, ast.ClassDef):
                yield child.lineno, child.end_lineno or child.lineno
        yield from find_functions(child, name, path)


@contextmanager
def environment() -> Iterator[tuple[Path, Path]]:
    """Yield a copy of the source, and a Python that imports it before the installed one.

    `PYTHONPATH` is not enough: some tests replace it, and servers over stdio do not inherit it.
    """
    with tempfile.TemporaryDirectory(prefix="toolmason-mutant-", ignore_cleanup_errors=True) as folder:
        source, home = Path(folder, "src"), Path(folder, "venv")
        shutil.copytree(ROOT / "src", source)
        venv.create(home, symlinks=True)
        base = {"base": str(home), "platbase": str(home)}
        site = Path(sysconfig.get_path("purelib", "venv", base))
        installed = sysconfig.get_path("purelib")
        (site / "mutant.pth").write_text(f"{source}\nimport site; site.addsitedir({installed!r})\n", "utf-8")
        scripts = Path(sysconfig.get_path("scripts", "venv", base))
        python, command = scripts / "python", scripts / "toolmason"
        body = Path(sys.executable).with_name("toolmason").read_text("utf-8").partition("\n")[2]
        command.write_text(f"#!{python}\n{body}", "utf-8")
        command.chmod(0o755)
        program = [str(python), "-I", "-c", "import toolmason; print(toolmason.__file__)"]
        imported = subprocess.check_output(program, text=True)
        assert Path(imported).is_relative_to(source), f"{python} imports {imported}"
        yield source, python


def run_tests(python: Path, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Run tests until the first failure. Return the exit code, or None after the time limit, and the output."""
    command = [str(python), "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "--timeout=30", *tests]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return code, output.read()


def judge(mutant: Mutant) -> Outcome:
    """Apply a mutant to a copy of the source and run its tests."""
    try:
        with environment() as (source, python):
            path = source.parent / mutant.file
            if not path.is_file():
                raise Stale(f"there is no file {mutant.file}")  # noqa: TRY301 - reported like the others
            path.write_text(mutant.apply(path.read_text("utf-8")), "utf-8")
            code, output = run_tests(python, mutant.tests, SECONDS)
    except Stale as stale:
        return Outcome("stale", str(stale))
    failure = FIRST_FAILURE.search(output)
    if code is None:
        return Outcome("killed", f"by the time limit of {SECONDS} s")
    if code in (TESTS_FAILED, INTERRUPTED) and failure is not None:
        return Outcome("killed", f"by {failure[1]}", failure[1])
    return Outcome("survived", ", ".join(mutant.tests)) if code == 0 else Outcome("stale", output[-300:])


def find_broken_tests(tests: Sequence[str]) -> list[str]:
    """Return the tests that fail without any mutant as well, so that their failure proves nothing."""
    with environment() as (_, python):
        code, output = run_tests(python, ["--maxfail=1000", *tests], SECONDS + 10 * len(tests)) if tests else (0, "")
    broken = FIRST_FAILURE.findall(output)
    return broken if code in (0, TESTS_FAILED) else [*broken, f"pytest ended with {code}: {output[-300:]}"]


def main() -> int:
    """Judge the mutants; return 1 if one survives or is stale."""
    parser = argparse.ArgumentParser(description="Break the package in one place at a time, and run the tests.")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="judge these mutants only")
    parser.add_argument("--list", action="store_true", help="print the mutants, and judge none")
    parser.add_argument("--jobs", type=int, default=1, help="number of mutants at a time")
    options = parser.parse_args()
    mutants = [Mutant(**entry) for entry in tomllib.loads(MUTANTS.read_text("utf-8"))["mutant"]]
    if unknown := set(options.only or ()) - {mutant.name for mutant in mutants}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    mutants = [mutant for mutant in mutants if not options.only or mutant.name in options.only]
    if options.list:
        print(*(f"{mutant.name:45} {mutant.description}" for mutant in mutants), sep="\n")
        return 0
    started, outcomes = time.monotonic(), []
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, outcome in zip(mutants, pool.map(judge, mutants), strict=True):
            outcomes.append(outcome)
            print(f"{outcome.status:9} {mutant.name}: {outcome.reason}", flush=True)
    broken = find_broken_tests(sorted({outcome.test for outcome in outcomes if outcome.test}))
    for test in broken:
        print(f"broken    {test} fails without a mutant")
    counts = {status: sum(each.status == status for each in outcomes) for status in ("killed", "survived", "stale")}
    print(f"{len(outcomes)} mutants:", *(f"{count} {status}," for status, count in counts.items()), end=" ")
    print(f"{len(broken)} broken tests; {time.monotonic() - started:.0f} s")
    return int(counts["killed"] < len(outcomes) or bool(broken))


if __name__ == "__main__":
    sys.exit(main())
