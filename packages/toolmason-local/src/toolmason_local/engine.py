"""A GGUF file → a `Writer`: llama.cpp in this process, on one thread.

Lives here: the one place that loads `xllamacpp`, what it is told, and what it answers. A file is loaded once, with the
first request, and requests wait for each other. Not here: what is asked (`choosing`, `filling`, `local`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from toolmason._core.toolbox.exchange import Usage
from toolmason.errors import ModelError, clip, text_of
from toolmason_local.grammars import literal
from toolmason_local.weights import INSTALL
from toolmason_local.writer import Bounds, Written

CONTEXT: Final = 4096
"""Tokens that a prompt and its answer may have."""
_SCORED_WORDS: Final = 25
"""How much of a text its likelihood is read from: each token costs about 20 ms on one core."""


class Stopped(Exception):
    """The caller does not want an answer any more."""


def engine_of(path: Path) -> Engine:
    """Return the engine of a file; the same one for everybody in this process."""
    return _engine(path, os.getpid())  # its threads do not survive a fork


@lru_cache(maxsize=2)
def _engine(path: Path, _: int) -> Engine:
    return Engine(path)


class Engine:
    """One file in memory, and the one thread that asks it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.thread = ThreadPoolExecutor(1, "toolmason-local")
        """Where everything here is called: requests wait for each other, and nobody else for them."""
        self._servers: tuple[Any, ...] = ()

    @property
    def address(self) -> str | None:
        """Where llama.cpp listens, on the loopback interface and behind a key; `None` until it is loaded."""
        return str(self._servers[0].listening_address) if self._servers else None

    def session(self, is_over: Callable[[], bool]) -> Session:
        """Return a writer for one request, which ends as soon as `is_over` says so.

        Raises:
            ImportError: llama.cpp is not installed.
            ModelError: the file could not be loaded.
        """
        if not self._servers:
            self._servers = (_started(self.path),)
        return Session(self._servers[0], is_over)


def _started(path: Path) -> Any:
    try:
        llama = import_module("xllamacpp")
    except ImportError as missing:
        raise ImportError(f"The local model needs llama.cpp: {INSTALL}") from missing
    settings = llama.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx, settings.n_parallel = CONTEXT, 1
    # Two threads on a busy machine of two cores are ten times slower than one: they wait for each other.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.warmup, settings.verbosity = False, -1
    # The library opens a port on the loopback interface, whether it is wanted or not; nobody knows its key.
    settings.api_keys, settings.ui, settings.endpoint_slots = [secrets.token_urlsafe()], False, False
    try:
        return llama.Server(settings)
    except Exception as error:
        raise ModelError("local", f"{path.name} could not be loaded: {text_of(error)}", code="load") from error


class Session:
    """A `Writer` over a running llama.cpp."""

    def __init__(self, server: Any, is_over: Callable[[], bool]) -> None:
        self._server, self._is_over = server, is_over
        self.usage = Usage()

    def write(self, prompt: str, bounds: Bounds, told: Callable[[str], None] | None = None) -> Written:
        """Go on with a prompt, token by token.

        Raises:
            ModelError: llama.cpp refused, or the grammar is none.
            Stopped: the caller has gone.
        """
        pieces: list[str] = []
        ends: list[str] = []
        refused: list[Any] = []

        def take(chunk: Any) -> bool:
            if isinstance(chunk, Mapping) and "error" in chunk:
                refused.append(chunk["error"])
            choice = _choice(chunk)
            if text := choice.get("text"):
                pieces.append(text)
                if told is not None:
                    told(text)
            if choice.get("finish_reason"):
                ends.append(choice["finish_reason"])
                self._count(chunk)
            return self._is_over()

        body: dict[str, Any] = {"prompt": prompt, "max_tokens": bounds.most, "temperature": 0.0, "stream": True}
        body |= {"stop": list(bounds.stop)} if bounds.stop else {}
        body |= {"grammar": bounds.grammar} if bounds.grammar is not None else {}
        body |= {"json_schema": dict(bounds.schema)} if bounds.schema is not None else {}
        if bounds.grammar is None and bounds.schema is None:
            body |= {"repeat_penalty": 1.1}
        self._ask(body, take)
        if refused:
            raise _refusal(refused[0])
        return Written("".join(pieces), ends[-1:] == ["stop"])

    def likelihood(self, prompt: str, text: str) -> float:
        """Return the mean log-probability of the first words of a text after a prompt.

        llama.cpp tells the probability of what it writes, not of what it reads: so it is made to write the text.

        Raises:
            ModelError: llama.cpp refused.
            Stopped: the caller has gone.
        """
        words = " " + " ".join(text.split()[:_SCORED_WORDS])[:400]
        body = {"prompt": prompt, "grammar": f"root ::= {literal(words)}", "max_tokens": 160, "temperature": 0.0}
        answer = self._ask({**body, "logprobs": 1}, None)
        tokens = (_choice(answer).get("logprobs") or {}).get("content") or []
        found = [float(token["logprob"]) for token in tokens if token.get("bytes")]
        self._count(answer)
        if not found:
            raise ModelError("local", "llama.cpp told no probabilities")
        return sum(found) / len(found)

    def _ask(self, body: dict[str, Any], take: Callable[[Any], bool] | None) -> Any:
        if self._is_over():
            raise Stopped
        try:
            ask = self._server.handle_completions
            answer = ask(body) if take is None else ask(body, take)
        except Exception as error:
            raise ModelError("local", f"llama.cpp refused: {clip(text_of(error), 200)}") from error
        if isinstance(answer, Mapping) and "error" in answer:
            raise _refusal(answer["error"])
        if self._is_over():
            raise Stopped
        return answer

    def _count(self, answer: Any) -> None:
        told = answer.get("usage") if isinstance(answer, Mapping) else None
        if isinstance(told, Mapping):
            cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self.usage += Usage(told.get("prompt_tokens", 0), told.get("completion_tokens", 0), cached)


def _refusal(told: Any) -> ModelError:
    words = told.get("message", told) if isinstance(told, Mapping) else told
    return ModelError("local", f"llama.cpp refused: {clip(str(words), 200)}")


def _choice(answer: Any) -> Mapping[str, Any]:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    return choices[0] if isinstance(choices, list) and choices else {}
