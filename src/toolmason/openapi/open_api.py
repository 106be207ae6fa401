"""`OpenApi`: an API that a document describes, as a source of tools."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias

from toolmason._core.define.schema_nodes import wrap_in_result
from toolmason._core.define.tool import Tool
from toolmason._core.values.definition import JsonSchema, ToolDefinition, ToolOptions
from toolmason._explain import explain_arguments
from toolmason._text import split_url
from toolmason.errors import ConfigError, PluginError, ToolmasonError, clip
from toolmason.models.http.sender import get_origin
from toolmason.openapi.api_tool import ApiTool, RequestPlan
from toolmason.openapi.bodies import describe_body, find_files
from toolmason.openapi.credentials import Credential, Credentials
from toolmason.openapi.document import ApiDocument, UnusablePart, load_document
from toolmason.openapi.http_calls import ApiClient
from toolmason.openapi.json_schemas import SchemaWriter, WrittenSchema
from toolmason.openapi.operation import (
    ApiBody,
    Operation,
    describe,
    get_parameter_schema,
    iter_operations,
    read_body,
    read_output,
    read_parameters,
    read_servers,
)
from toolmason.openapi.styles import ApiParameter

_log = logging.getLogger("toolmason")

OperationRule: TypeAlias = str | Callable[[Operation], bool]
"""A pattern with shell wildcards for the name (`list_*`), for method and path (`GET /pets/*`) or for a tag
(`tag:pets`), or a function of the operation."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class SkippedOperation(PluginError):
    """An operation of a document is not a tool; `reason` says why."""

    def __init__(self, label: str, place: str, reason: str) -> None:
        ToolmasonError.__init__(self, f"{label} of {place!r} is not a tool: {reason}.")
        self.name, self.value, self.reason, self.distribution = label, place, reason, None


class OpenApi:
    """An API as a source of tools: `Toolbox(OpenApi("api.json", auth={"key": secret}))`.

    `spec` is a path, a URL or the parsed document. Every request goes to `base_url`: by default to that of `client`, or
    else to the first server of the document, if that is a file or on the same origin. `auth` has the credentials by
    security scheme. `include` and `exclude` select operations; `rename` maps names, or is a function of the operation.
    With `outputs=False`, tools have no output schema and responses are not checked.

    Raises:
        ConfigError: the document cannot be read, has no server, or a rule or credential does not fit it.
    """

    @explain_arguments
    def __init__(  # noqa: PLR0913 - one parameter for each option
        self,
        spec: Mapping[str, Any] | str | Path | ApiDocument,
        *,
        client: Any = None,
        base_url: str | None = None,
        auth: Mapping[str, Credential] | None = None,
        include: Sequence[OperationRule] = (),
        exclude: Sequence[OperationRule] = (),
        rename: Mapping[str, str] | Callable[[Operation], str | None] | None = None,
        outputs: bool = True,
    ) -> None:
        for name, rules in (("include", include), ("exclude", exclude)):
            if isinstance(rules, str):
                raise ConfigError(f"{name}={rules!r} is a string. Pass a list of patterns.")
        self._document = load_document(spec)
        self._client = ApiClient(_find_server(self._document, base_url, client), client)
        self._auth = Credentials(self._document, auth or {})
        self._requests = SchemaWriter(self._document, for_requests=True)
        self._responses = SchemaWriter(self._document, for_requests=False) if outputs else None
        self._include, self._exclude, self._rename = include, exclude, rename
        self._tools: dict[str, Tool] = {}
        self._problems: list[SkippedOperation] = []
        self._used_names: set[str] = set()
        for found in iter_operations(self._document):
            if isinstance(found, Operation):
                self._add(found)
            else:
                self._skip(*found)
        if isinstance(rename, Mapping) and (unused := sorted(rename.keys() - self._used_names)):
            raise ConfigError(f"rename={{{clip(unused[0])!r}: …}}: no operation has this name, or method and path.")

    @property
    def base_url(self) -> str:
        """The address that every request goes to."""
        return self._client.base_url

    @property
    def problems(self) -> tuple[SkippedOperation, ...]:
        """The operations that are not tools, with the reasons. `Toolbox.problems` has them as well."""
        return tuple(self._problems)

    def __tools__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    async def __aclose__(self) -> None:
        """Close the connections; the toolbox calls it. The next call opens them again, and `client` stays open."""
        await self._client.aclose()

    def __repr__(self) -> str:
        return f"<OpenApi {self._document.place!r}: {len(self._tools)} tools>"

    def _skip(self, label: str, reason: str, *, is_wanted: bool = True) -> None:
        self._problems.append(SkippedOperation(label, self._document.place, reason))
        if is_wanted:
            _log.warning("%s of %s is not a tool: %s", label, self._document.place, reason)

    def _add(self, operation: Operation) -> None:
        if self._include and not any(_matches(rule, operation) for rule in self._include):
            self._skip(operation.label, "no rule of `include` matches it", is_wanted=False)
            return
        if any(_matches(rule, operation) for rule in self._exclude):
            self._skip(operation.label, "a rule of `exclude` matches it", is_wanted=False)
            return
        try:
            self._check_server(operation)
            tool = self._make_tool(operation, self._choose_name(operation))
        except UnusablePart as problem:
            self._skip(operation.label, str(problem))
        else:
            self._tools[tool.name] = tool

    def _check_server(self, operation: Operation) -> None:
        """Raise if an operation is on another server than the one that the developer has fixed."""
        own = read_servers(self._document, operation.node) or read_servers(self._document, operation.shared)
        usual = [self._client.base_url, *read_servers(self._document, self._document.root)]
        if own and not set(own) & set(usual):
            raise UnusablePart(f"it is on another server, {clip(own[0])!r}; make another source with this `base_url`")

    def _choose_name(self, operation: Operation) -> str:
        name = self._find_renamed(operation)
        if name is None:
            name = operation.default_name
            if name in self._tools:  # two operations with one id, or ids that differ in other characters only
                name = operation.path_name
        if name in self._tools:
            taken = self._tools[name].origin
            raise UnusablePart(f"its name {name!r} is that of {taken}; rename one of them")
        return name

    def _find_renamed(self, operation: Operation) -> str | None:
        if callable(self._rename):
            return self._rename(operation)
        for key in (operation.label, operation.id, operation.default_name):
            if self._rename is not None and key is not None and key in self._rename:
                self._used_names.add(key)
                return self._rename[key]
        return None

    def _make_tool(self, operation: Operation, name: str) -> ApiTool:
        parameters = read_parameters(self._document, operation, self._auth.fields)
        body = read_body(self._document, operation)
        body_key = "request_body" if any(parameter.key == "body" for parameter, _ in parameters) else "body"
        files = frozenset[str]() if body is None else find_files(self._document, body)
        output, wraps = self._make_output(operation)
        schemes, missing = self._auth.choose(operation.node)
        keys = [parameter for parameter, _ in parameters]
        plan = RequestPlan(
            operation=operation,
            parameters=keys,
            body=body,
            body_key=body_key,
            files=files,
            wraps_output=wraps,
            schemes=schemes,
            missing_schemes=missing,
            secret_fields=frozenset(self._auth.fields),
        )
        schema = self._make_input(parameters, body, body_key, files)
        definition = ToolDefinition(name, describe(operation, keys, output), schema, output)
        method = operation.method
        options = ToolOptions(
            read_only=True if method in _READING else None,
            destructive=True if method == "DELETE" else None,
            idempotent=True if method in _READING | {"PUT", "DELETE"} else None,
            open_world=True,
            tags=frozenset(operation.tags),
        )
        return ApiTool(plan, definition, options, self._client, self._auth)

    def _make_input(
        self,
        parameters: Sequence[tuple[ApiParameter, Mapping[str, Any]]],
        body: ApiBody | None,
        body_key: str,
        files: frozenset[str],
    ) -> JsonSchema:
        whole = WrittenSchema({})
        properties: JsonSchema = {}
        required: list[str] = []
        for parameter, node in parameters:
            part = self._requests.write(get_parameter_schema(node))
            text = node.get("description")
            described = {"description": text} if isinstance(text, str) and "description" not in part.schema else {}
            properties[parameter.key] = {**part.schema, **described}
            _merge(whole, part)
            required += [parameter.key] if parameter.required else []
        if body is not None:
            part = self._requests.write(body.schema)
            if files and isinstance(body.schema, Mapping) and "$ref" in body.schema:
                part = self._requests.write(self._document.resolve(body.schema, "the schema of its request body"))
            properties[body_key] = describe_body(body, part.schema, files)
            _merge(whole, part)
            required += [body_key] if body.required else []
        whole.schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return self._requests.add_definitions(whole)

    def _make_output(self, operation: Operation) -> tuple[JsonSchema | None, bool]:
        """Return the output schema, and whether the value is wrapped in `result`."""
        schemas = [] if self._responses is None else read_output(self._document, operation)
        if not schemas or self._responses is None:
            return None, False
        parts = [self._responses.write(schema) for schema in schemas]
        whole = parts[0] if len(parts) == 1 else WrittenSchema({"anyOf": [part.schema for part in parts]})
        for part in parts if len(parts) > 1 else ():
            _merge(whole, part)
        if len(parts) == 1 and "$ref" in whole.schema and isinstance(schemas[0], Mapping):
            # An output schema must say itself that it is an object.
            whole = self._responses.write(self._document.resolve(schemas[0], "a schema"))
        schema = self._responses.add_definitions(whole)
        if schema.get("type") == "object":
            return schema, False
        return wrap_in_result(schema), True


def _merge(whole: WrittenSchema, part: WrittenSchema) -> None:
    whole.references += part.references
    whole.nodes += part.nodes


def _matches(rule: OperationRule, operation: Operation) -> bool:
    if callable(rule):
        return bool(rule(operation))
    if rule.startswith("tag:"):
        return any(fnmatchcase(tag, rule[4:]) for tag in operation.tags)
    if " " in rule:
        return fnmatchcase(operation.label, rule)
    return any(fnmatchcase(name, rule) for name in (operation.default_name, operation.id or ""))


def _find_server(document: ApiDocument, base_url: str | None, client: Any) -> str:
    """Return the address that requests go to: the developer fixes it, or the document that the developer chose."""
    if base_url is not None:
        return base_url
    if client is not None and (own := str(getattr(client, "base_url", ""))):
        return own
    servers = read_servers(document, document.root)
    if document.url is not None:
        # A document from the network must not choose where credentials go.
        servers = [url for url in servers if get_origin(url) == get_origin(document.url)]
        if not servers and "servers" not in document.root:
            servers = [get_origin(document.url)]
    if not servers or not split_url(servers[0]).hostname:
        raise ConfigError(
            f"The OpenAPI document {clip(document.place)!r} names no server that can be used. "
            "Pass base_url='https://...'."
        )
    return servers[0]
