"""Build what a release uploads, and use it as a stranger does; `make release-check` runs it.

Two builds must have the same bytes. In an empty environment the wheel runs the first minute of the README. Without an
extra, the error names the command that installs it; with it, in its newest and its lowest versions, the error is gone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "release"
TOOLS = Path(sys.executable).parent
NEEDS = {
    "auth": "from toolmason.mcp import Jwt; Jwt(issuer='https://a.example', audience='b', jwks='https://a.example/keys')",
    "cli": "import toolmason.cli.main",
    "code": "from toolmason import Chat; Chat('offline', Toolbox(a), code=True)",
    "langchain": "print(Toolbox().as_langchain())",
    "mcp": "print(asyncio.run(Toolbox(McpServer.stdio('a', 'no-such-program')).list()))",
    "models": "print(model('openai:gpt-5', api_key='a'))",
    "openai-agents": "print(Toolbox().as_openai_agents())",
    "openapi": "print(asyncio.run(Toolbox.from_openapi(API).call('get_a')).text)",
    "otel": "from toolmason.observe import record\nwith record(): pass",
    "postgres": "from toolmason.chat import PostgresStore; PostgresStore('postgresql://127.0.0.1:1/a')",
    "pydantic-ai": "print(Toolbox().as_pydantic_ai())",
    "ray": "from toolmason.scale import *; print(Toolbox(a, executor=RayExecutor('127.0.0.1:1')).call_sync('a').text)",
    "serve": "from toolmason import asgi_app; asgi_app(Toolbox()); import toolmason.mcp_server.http.http_server",
    "temporal": "from toolmason.scale import TemporalRuntime; TemporalRuntime('127.0.0.1:1')",
    "ui": "import toolmason.ui.page_app",
    "yaml": "print(model('scripted:script.yaml'))",
}
"""What needs an extra, after the statements of `BEGINNING`."""
BEGINNING = """\
import asyncio, pathlib
from toolmason import McpServer, Toolbox, model, tool
pathlib.Path('script.yaml').write_text('- Hello')
API = {'openapi': '3.1.0', 'info': {'title': 'a', 'version': '1'}, 'servers': [{'url': 'http://127.0.0.1:1'}],
       'paths': {'/a': {'get': {'operationId': 'get_a', 'responses': {'200': {'description': 'A.'}}}}}}
pathlib.Path('probe.py').write_text("from toolmason import tool\\n@tool\\ndef a() -> int:\\n    'A.'\\n    return 1\\n")
from probe import a
"""
BESIDE = {"anthropic", "gemini", "openai", "local", "all", "dev"}
"""Extras without a module of their own: SDKs for the application, a package of this repository, sets of extras."""
MUST_HAVE = ("toolmason/py.typed", "ui/static/index.html", "ui/static/licenses.md", "licenses/LICENSE")


def run(*command: object, cwd: Path = ROOT, **variables: str) -> str:
    """Run a command; return what it printed.

    Raises:
        SystemExit: it failed.
    """
    done = attempt(*command, cwd=cwd, **variables)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def attempt(*command: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command; return its end and what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def build_twice() -> list[Path]:
    """Build each distribution twice; return the files of the second build."""
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    places = [ROOT, ROOT / "packages" / "toolmason-local"]
    builds = []
    for number in "12":
        folder = BUILD / f"build-{number}"
        for place in places:
            run(TOOLS / "python", "-m", "build", "-q", "-o", folder, place, SOURCE_DATE_EPOCH=epoch)
        builds.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())})
    if builds[0] != builds[1]:
        sys.exit(f"Two builds differ: {builds}")
    for name, digest in builds[1].items():
        print(f"{digest[:16]}  {(folder / name).stat().st_size:>10,} bytes, twice the same  {name}", flush=True)
    return sorted(folder.iterdir())


def inspect(files: list[Path]) -> Path:
    """Check names, metadata and contents; return the wheel of the library."""
    print(run(TOOLS / "twine", "check", "--strict", *files).strip().splitlines()[-1])
    wheels = [path for path in files if path.suffix == ".whl"]
    # W002: `__init__.py` files may be equal.
    print(run(TOOLS / "check-wheel-contents", "--ignore", "W002", *wheels).strip())
    wheel = next(path for path in wheels if path.name.startswith("toolmason-"))
    names = zipfile.ZipFile(wheel).namelist()
    if missing := [name for name in MUST_HAVE if not any(one.endswith(name) for one in names)]:
        sys.exit(f"{wheel.name} lacks {missing}.")
    if foreign := [name for name in names if not re.match(r"toolmason(/|-[^/]+\.dist-info/)", name)]:
        sys.exit(f"{wheel.name} has files of others: {foreign[:5]}")
    readme = next(zipfile.ZipFile(wheel).read(name).decode() for name in names if name.endswith("/METADATA"))
    if dead := re.findall(r"\]\((?!https://|#)[^)]+\)", readme):
        sys.exit(f"Links of the README that lead nowhere on a registry: {dead[:5]}")
    sdist = next(path for path in files if path.name.startswith("toolmason-") and path.suffix == ".gz")
    with tarfile.open(sdist) as archive:
        print(f"{wheel.name}: {len(names)} files; {sdist.name}: {len(archive.getnames())} files")
    return wheel


def make_environment(name: str, *requirements: str, lowest: bool = False) -> Path:
    """Make an empty environment with the requirements; return its interpreter."""
    folder = BUILD / "environments" / name
    run(TOOLS / "uv", "venv", "-q", "--clear", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    resolution = ["--resolution", "lowest-direct"] if lowest else []
    # uv reads no settings of pip: where those name another index, the variables of uv do as well.
    run(TOOLS / "uv", "pip", "install", "-q", "--python", python, *resolution, *requirements)
    return python


def read_first_minute() -> tuple[str, list[tuple[str, str]]]:
    """Return the first tool of the README, and its commands with their output."""
    page = (ROOT / "README.md").read_text("utf-8")
    source = re.search(r"```python\n(# weather\.py\n.*?)```", page, re.DOTALL)
    block = re.search(r"```console\n(\$ toolmason call weather.*?)```", page, re.DOTALL)
    if source is None or block is None:
        sys.exit("The README has lost its first minute: a block `# weather.py`, and one with `toolmason call weather`.")
    commands = [part.split("\n", 1) for part in block[1].split("$ ") if part]
    return source[1], [(command, output.strip()) for command, output in commands]


def use_wheel(wheel: Path) -> None:
    """Install the wheel into an empty environment, run the first minute of the README, and write the SBOM."""
    python = make_environment("stranger", f"toolmason[cli] @ {wheel.as_uri()}")
    folder = BUILD / "stranger"
    folder.mkdir(parents=True, exist_ok=True)
    source, commands = read_first_minute()
    (folder / "weather.py").write_text(source, "utf-8")
    for command, output in commands:
        _, _, words = command.partition(" ")
        shown = run(python.with_name("toolmason"), *words.split(), cwd=folder).strip()
        if shown != output:
            sys.exit(f"$ {command}\nThe README shows {output!r}; the wheel printed {shown!r}.")
        print(f"$ {command}\n{shown}")
    sbom = BUILD / "sbom.cdx.json"
    run(TOOLS / "cyclonedx-py", "environment", python, "--output-reproducible", "--of", "JSON", "-o", sbom)
    print(f"{sbom.relative_to(ROOT)}: {len(json.loads(sbom.read_text('utf-8'))['components'])} components")


def use_extras(wheel: Path, chosen: list[str]) -> None:
    """Check the message without each extra, and that each works by itself, newest and lowest."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    if declared.keys() != NEEDS.keys() | BESIDE:
        sys.exit(f"Extras without a check in this file: {declared.keys() ^ (NEEDS.keys() | BESIDE)}")
    base = make_environment("base", str(wheel))
    failed = []
    for extra in chosen or sorted(NEEDS):
        source = BEGINNING + NEEDS[extra]
        outcomes = {"absent": attempt(base, "-c", source, cwd=BUILD).stdout}
        for name, is_lowest in (("newest", False), ("lowest", True)):
            python = make_environment(f"{extra}-{name}", f"toolmason[{extra}] @ {wheel.as_uri()}", lowest=is_lowest)
            outcomes[name] = attempt(python, "-c", source, cwd=BUILD).stdout
        verdicts = {
            name: ("names the command" if re.search(rf"toolmason\[[a-z,]*\b{extra}\b", text) else "no command")
            if name == "absent"
            else ("missing" if "Traceback" in text or "pip install" in text else "works")
            for name, text in outcomes.items()
        }
        print(f"{extra:14} " + ", ".join(f"{name}: {verdict}" for name, verdict in verdicts.items()), flush=True)
        for name, verdict in verdicts.items():
            if verdict in ("missing", "no command"):
                failed.append(f"{extra}, {name}: {outcomes[name].strip()[-400:]}")
    if failed:
        sys.exit("\n".join(failed))


def main() -> None:
    """Run every check."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--extras", nargs="*", default=[], help="only these extras")
    options.add_argument("--no-extras", action="store_true", help="leave the extras out: they take minutes")
    given = options.parse_args()
    run("rm", "-rf", BUILD)
    BUILD.mkdir(parents=True)
    wheel = inspect(build_twice())
    use_wheel(wheel)
    if not given.no_extras:
        use_extras(wheel, given.extras)


if __name__ == "__main__":
    main()
