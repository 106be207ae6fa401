"""Run llama.cpp (`xllamacpp`) in this process on one thread.

A file is loaded once, with the first request; requests run one after another.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from toolmason.errors import ModelError, clip, safe_str
from toolmason.models import Usage
from toolmason_local.merged import find_merged
from toolmason_local.writer import Completion, GenerationLimits

PROMPT_CACHE_MB: Final = 64
"""Maximum memory for the states of earlier prompts. llama.cpp keeps up to 8 GB by default."""
CONTEXT_TOKENS: Final = 4096
"""Maximum tokens of a prompt and its completion together."""


class GenerationStopped(Exception):
    """The caller cancelled the generation."""


def get_engine(path: Path, adapter: Path | None = None) -> LlamaEngine:
    """Return the engine of a file and its adapter; it is shared within the process."""
    return _make_engine(path, adapter, os.getpid())  # threads do not survive a fork


@lru_cache(maxsize=2)
def _make_engine(path: Path, adapter: Path | None, _: int) -> LlamaEngine:
    return LlamaEngine(path, adapter)


class LlamaEngine:
    """Loaded model file, and the one thread that uses it."""

    def __init__(self, path: Path, adapter: Path | None = None) -> None:
        self.path, self.adapter = path, adapter
        self.thread = ThreadPoolExecutor(1, "toolmason-local")
        """Executor of all calls into llama.cpp; requests queue here without blocking other threads."""
        self._servers: tuple[Any, ...] = ()
        self._merged: Path | None = None

    @property
    def address(self) -> str | None:
        """Loopback address where llama.cpp listens, protected by a key; `None` until it is loaded."""
        return str(self._servers[0].listening_address) if self._servers else None

    def start_session(self, is_cancelled: Callable[[], bool]) -> LlamaSession:
        """Return a session for one request, which stops as soon as `is_cancelled` returns True.

        Raises:
            ImportError: llama.cpp is not installed.
            ModelError: the file could not be loaded.
            GenerationStopped: the caller has cancelled.
        """
        if not self._servers:
            if self.adapter is not None:
                self._merged = find_merged(self.path, self.adapter, is_cancelled)
            if is_cancelled():
                raise GenerationStopped
            self._servers = (_start_server(self.path, self.adapter, self._merged),)
        return LlamaSession(
            self._servers[0], is_cancelled, has_adapter=self.adapter is not None, is_merged=self._merged is not None
        )


def _start_server(path: Path, adapter: Path | None, merged: Path | None) -> Any:
    try:
        llama = import_module("xllamacpp")
    except ImportError as missing:
        raise ImportError("The local model needs llama.cpp: pip install xllamacpp") from missing
    settings = llama.CommonParams()
    settings.model.path = str(merged or path)
    settings.n_ctx = CONTEXT_TOKENS
    settings.n_parallel = 1
    settings.cache_ram_mib = PROMPT_CACHE_MB
    # On a busy machine with two cores, two threads are ten times slower than one: they wait for each other.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.warmup = False
    settings.verbosity = -1
    # The library always opens a port on the loopback interface; a random key protects it.
    settings.api_keys = [secrets.token_urlsafe()]
    if adapter is not None:
        info = llama.CommonAdapterLoraInfo()
        info.path, info.scale = str(adapter), 0.0 if merged else 1.0
        settings.lora_adapters = [info]
    settings.ui = False
    settings.endpoint_slots = False
    try:
        return llama.Server(settings)
    except Exception as error:
        raise ModelError("local", f"{path.name} could not be loaded: {safe_str(error)}", code="load") from error


class LlamaSession:
    """Text generator for one request to llama.cpp."""

    def __init__(
        self, server: Any, is_cancelled: Callable[[], bool], *, has_adapter: bool = False, is_merged: bool = False
    ) -> None:
        self._server, self._is_cancelled = server, is_cancelled
        self._base_scale = -1.0 if is_merged else 0.0
        self.has_adapter = has_adapter
        """True if the model was taught to call tools."""
        self.usage = Usage()

    def generate(
        self, prompt: str, limits: GenerationLimits, on_text: Callable[[str], None] | None = None
    ) -> Completion:
        """Complete a prompt, token by token.

        Raises:
            ModelError: llama.cpp failed, or the grammar is invalid.
            GenerationStopped: the caller has cancelled.
        """
        pieces: list[str] = []
        finish_reasons: list[str] = []
        errors: list[Any] = []
        logprobs: list[float] = []

        def on_chunk(chunk: Any) -> bool:
            if isinstance(chunk, Mapping) and "error" in chunk:
                errors.append(chunk["error"])
            choice = _get_choice(chunk)
            if not logprobs and isinstance(scored := choice.get("logprobs"), Mapping) and scored.get("content"):
                logprobs.append(float(scored["content"][0]["logprob"]))
            if text := choice.get("text"):
                pieces.append(text)
                if on_text is not None:
                    on_text(text)
            if choice.get("finish_reason"):
                finish_reasons.append(choice["finish_reason"])
                self._add_usage(chunk)
            return self._is_cancelled()

        body: dict[str, Any] = {"prompt": prompt, "max_tokens": limits.max_tokens, "temperature": 0.0, "stream": True}
        body |= {"stop": list(limits.stop)} if limits.stop else {}
        body |= {"grammar": limits.grammar, "logprobs": 1} if limits.grammar is not None else {}
        body |= {"json_schema": dict(limits.schema)} if limits.schema is not None else {}
        if limits.grammar is None and limits.schema is None:
            body |= {"repeat_penalty": 1.1}
            # Free text is the base model's: the adapter knows calls and answers only.
            body |= {"lora": [{"id": 0, "scale": self._base_scale}]} if self.has_adapter else {}
        self._request(body, on_chunk)
        if errors:
            raise _make_error(errors[0])
        probability = math.exp(logprobs[0]) if logprobs else 1.0
        return Completion("".join(pieces), finish_reasons[-1:] == ["stop"], probability)

    def _request(self, body: dict[str, Any], on_chunk: Callable[[Any], bool] | None) -> Any:
        if self._is_cancelled():
            raise GenerationStopped
        try:
            complete = self._server.handle_completions
            answer = complete(body) if on_chunk is None else complete(body, on_chunk)
        except Exception as error:
            raise ModelError("local", f"llama.cpp failed: {clip(safe_str(error), 200)}") from error
        if isinstance(answer, Mapping) and "error" in answer:
            raise _make_error(answer["error"])
        if self._is_cancelled():
            raise GenerationStopped
        return answer

    def _add_usage(self, answer: Any) -> None:
        usage = answer.get("usage") if isinstance(answer, Mapping) else None
        if isinstance(usage, Mapping):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self.usage += Usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), cached)


def _make_error(error: Any) -> ModelError:
    message = error.get("message", error) if isinstance(error, Mapping) else error
    return ModelError("local", f"llama.cpp failed: {clip(str(message), 200)}")


def _get_choice(answer: Any) -> Mapping[str, Any]:
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    return choices[0] if isinstance(choices, list) and choices else {}
