"""`ApiTool`: an operation of an API as a tool that sends its request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json
from typing_extensions import override

from toolmason._core.call.render import convert
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import CompiledTool, Tool
from toolmason._core.values.content import Audio, Content, EmbeddedResource, Image
from toolmason._core.values.definition import ToolDefinition, ToolOptions
from toolmason._core.values.results import ToolResult, replace_result
from toolmason._secrets import mask_values
from toolmason._text import clip
from toolmason._wire import is_retryable_status
from toolmason.errors import ToolError
from toolmason.mcp_client.calls.input_checks import make_remote_inputs
from toolmason.mcp_client.calls.output_checks import OutputChecker
from toolmason.openapi.bodies import write_body
from toolmason.openapi.credentials import Credentials, Secrets
from toolmason.openapi.http_calls import ApiClient, ApiRequest, ApiResponse
from toolmason.openapi.operation import ApiBody, Operation
from toolmason.openapi.styles import ApiParameter, encode, refuse, write_header, write_pairs, write_path

_ERROR_STATUS: Final = 400
_TOO_MANY_REQUESTS: Final = 429
_MAX_BODY_CHARS: Final = 2_000
"""Characters of an error response that the model reads."""


class ApiError(ToolError):
    """The API answered with an HTTP error. The model reads the status and the start of the body."""

    code = "http_error"

    def __init__(self, message: str, status: int, *, retryable: bool = False, retry_after: float | None = None) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status
        """HTTP status."""
        self.retry_after = retry_after
        """Seconds that the server asked the client to wait, or None."""

    def to_model(self) -> dict[str, Any]:
        """Return the JSON object that the model reads, with the status."""
        payload = super().to_model()
        payload["error"]["status"] = self.status
        return payload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RequestPlan:
    """How the arguments of an operation become a request."""

    operation: Operation
    parameters: Sequence[ApiParameter]
    body: ApiBody | None
    body_key: str
    files: frozenset[str]
    """Fields of the body that are bytes."""
    wraps_output: bool
    """True if the output schema has the value in its field `result`."""
    schemes: Sequence[str]
    """Security schemes to fill."""
    missing_schemes: Sequence[str]
    """Security schemes that the operation needs and the application has not filled."""
    secret_fields: frozenset[tuple[str, str]]
    """Location and name of every field of a security scheme."""

    def make_request(self, arguments: Mapping[str, Any], secrets: Secrets, *, is_repeatable: bool) -> ApiRequest:
        """Return the request for a call.

        Raises:
            InvalidArguments: a value cannot be sent in its place.
        """
        in_path = {parameter.name: parameter for parameter in self.parameters if parameter.location == "path"}
        request = ApiRequest(
            method=self.operation.method,
            path=write_path(self.operation.path, in_path, arguments),
            headers=dict(secrets.headers),
            is_repeatable=is_repeatable,
            secrets=secrets.values,
        )
        for parameter in self.parameters:
            value = arguments.get(parameter.key)
            if value is None or parameter.location == "path":
                continue
            if parameter.location == "header":
                request.headers[parameter.name] = write_header(parameter, value)
            else:
                pairs = list(write_pairs(parameter, value))
                self._check_names(parameter, pairs)
                (request.query if parameter.location == "query" else request.cookies).extend(pairs)
        request.query += secrets.query
        request.cookies += secrets.cookies
        if self.body is not None and (value := arguments.get(self.body_key)) is not None:
            request.content, content_type = write_body(self.body, self.body_key, self.files, value)
            request.headers["Content-Type"] = content_type
        return request

    def _check_names(self, parameter: ApiParameter, pairs: Sequence[tuple[str, str]]) -> None:
        """Refuse an object whose keys would set another parameter, or a field that the application fills."""
        others: set[tuple[str, str]] = {
            (other.location, encode(other.name)) for other in self.parameters if other is not parameter
        }
        others |= {(location, encode(name)) for location, name in self.secret_fields}
        for name, _ in pairs:
            if name != encode(parameter.name) and (parameter.location, name) in others:
                raise refuse(parameter.key, f"must not set {clip(name)!r}", "other keys", name)


class ApiTool(Tool):
    """A tool that sends a request to an API."""

    def __init__(
        self, plan: RequestPlan, definition: ToolDefinition, options: ToolOptions, client: ApiClient, auth: Credentials
    ) -> None:
        self.plan, self.definition, self.options = plan, definition, options
        self._client, self._auth = client, auth
        schema = definition.output_schema
        self._checker = None if schema is None else OutputChecker(schema, f"{client.origin}/{definition.name}")

    @override
    def _compile(self) -> CompiledTool:
        inputs = make_remote_inputs(self.definition.input_schema, f"{self._client.origin}/{self.name}")
        return CompiledTool(inputs, self.invoke, renderer=self._render)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        secrets = await self._auth.make(self.plan.schemes, context)
        request = self.plan.make_request(arguments, secrets, is_repeatable=self.options.repeatable)
        response = await self._client.send(request)
        if response.status >= _ERROR_STATUS:
            raise self._make_error(response, secrets)
        value = _read_value(response)
        if self._checker is not None:
            structured = {"result": value} if self.plan.wraps_output else value
            if (reason := await self._checker.find_misfit(structured)) is not None:
                raise ToolError(
                    f"{self.plan.operation.label} answered {response.status}, but not as its document says: {reason}. "
                    f"The response: {_show(response, secrets)}"
                )
        return value

    def _render(self, value: Any) -> ToolResult:
        result = convert(self, value, {})
        if self.plan.wraps_output and not isinstance(value, str):
            return replace_result(result, structured={"result": value})
        return result

    @property
    @override
    def origin(self) -> str:
        return f"{self.plan.operation.label} of {self._client.origin}"

    def _make_error(self, response: ApiResponse, secrets: Secrets) -> ApiError:
        status = response.status
        # Other requests may have taken effect before the server failed.
        retryable = is_retryable_status(status) and (self.options.repeatable or status == _TOO_MANY_REQUESTS)
        message = f"{self.plan.operation.label} answered {status} {response.reason}".rstrip()
        if shown := _show(response, secrets):
            message += f": {shown}"
        if self.plan.missing_schemes and status in (401, 403):
            message += f" The application has no credentials for {', '.join(map(repr, self.plan.missing_schemes))}."
        return ApiError(message, status, retryable=retryable, retry_after=response.retry_after)


def _show(response: ApiResponse, secrets: Secrets) -> str:
    """Return the start of a response, without secrets of the request."""
    # A secret at the end of the excerpt must not be cut before it is masked.
    longest = max(map(len, secrets.values), default=0)
    text = response.content[: 4 * (_MAX_BODY_CHARS + longest)].decode(errors="replace").strip()
    return clip(mask_values(text, secrets.values), _MAX_BODY_CHARS)


def _read_value(response: ApiResponse) -> Any:
    """Return the value of a response: JSON data, text, or a part with its bytes."""
    kind, content = response.content_type, response.content
    if not content:
        return None
    is_json = kind == "application/json" or kind.endswith("+json")
    if is_json or not kind:
        try:
            return from_json(content)
        except ValueError:
            if is_json:
                raise ToolError(f"The API answered {response.status} with invalid JSON.") from None
    if kind.startswith("text/") or kind in ("", "application/xml", "application/yaml") or kind.endswith("+xml"):
        return content.decode(errors="replace")
    return _make_part(kind, content)


def _make_part(kind: str, content: bytes) -> Content:
    if kind.startswith("image/"):
        return Image(content, kind)
    if kind.startswith("audio/"):
        return Audio(content, kind)
    return EmbeddedResource("response", data=content, mime_type=kind)
