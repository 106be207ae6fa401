"""The local model of toolmason: a small language model on the CPU, without a key or a network."""

from typing import Any

from toolmason_local.local_model import LocalModel

__all__ = ["LocalModel", "make"]


def make(path: str = "", /, **options: Any) -> LocalModel:
    """Return the model for `model("local")` or `model("local:PATH")`, where PATH is another GGUF file."""
    del options  # of requests over HTTP: keys, addresses, retries
    return LocalModel(path or None)
