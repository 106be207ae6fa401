"""Local model for toolmason: a small language model on the CPU, without an API key or network access."""

from typing import Any

from toolmason_local.local_model import LocalModel

__all__ = ["LocalModel", "make"]


def make(path: str = "", /, **options: Any) -> LocalModel:
    """Return the model for `model("local")` or `model("local:PATH")`, where PATH is a GGUF file."""
    del options  # they configure HTTP requests: keys, URLs, retries
    return LocalModel(path or None)
