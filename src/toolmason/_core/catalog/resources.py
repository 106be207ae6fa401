"""Read `@resource` functions by URI."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json

from toolmason._core.catalog.prompts import run_declared
from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import Declaration
from toolmason._core.define.tool import FunctionTool
from toolmason._core.values.content import CONTENT_TYPES, Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from toolmason._core.values.policy import CarriedPolicy, EngineSettings
from toolmason.errors import DefinitionError


class Resource:
    """Readable content under a URI, or under every URI that matches a template."""

    policies: tuple[CarriedPolicy, ...] = ()
    """Policies of the toolboxes that the resource came through, innermost first."""

    def __init__(self, fn: Any, declaration: Declaration) -> None:
        self._tool = FunctionTool(fn, declaration)
        self.name, self.description, self.origin = self._tool.name, self._tool.description, self._tool.origin
        self.input_schema = self._tool.definition.input_schema
        self.uri = declaration.uri
        """URI or URI template."""
        self.title, self.mime_type = declaration.title, declaration.mime_type
        from toolmason._core.catalog.uri_templates import UriTemplate  # noqa: PLC0415 - 2 ms at start-up, needed only for resources

        self.template = UriTemplate.parse(self.uri)
        self.parameters = self.template.names
        """Placeholders of a template; empty for a fixed URI."""
        parameter_names = set(self.input_schema.get("properties", {}))
        if parameter_names != set(self.parameters):
            raise DefinitionError(
                f"@resource({self.uri!r}): the URI has the placeholders {sorted(self.parameters)}, but the function "
                f"takes {sorted(parameter_names)}. Add one placeholder of the same name for each parameter."
            )

    @property
    def link(self) -> ResourceLink:
        """A link to the resource."""
        return ResourceLink(self.uri, self.name, self.mime_type, self.description)

    def match_uri(self, uri: str) -> dict[str, str] | None:
        """Return the placeholder values in a URI, or None if the URI does not match."""
        if not self.parameters:
            return {} if uri == self.uri else None
        return self.template.match(uri)

    async def read(
        self, uri: str, values: dict[str, str], context: ToolContext[Any], settings: EngineSettings
    ) -> tuple[Content, ...]:
        """Return the contents.

        Raises:
            InvalidArguments: a placeholder's value is invalid for its parameter.
        """
        return tuple(self._to_contents(uri, await run_declared(self._tool, values, context, settings)))

    def _to_contents(self, uri: str, value: Any) -> Iterable[Content]:
        if isinstance(value, EmbeddedResource):
            yield value
        elif isinstance(value, list | tuple) and value and all(type(item) in CONTENT_TYPES for item in value):
            for item in value:
                yield from self._to_contents(uri, item)
        elif isinstance(value, Text):
            yield EmbeddedResource(uri, value.text, mime_type=self.mime_type or "text/plain")
        elif isinstance(value, str):
            yield EmbeddedResource(uri, value, mime_type=self.mime_type or "text/plain")
        elif isinstance(value, bytes | bytearray):
            yield EmbeddedResource(uri, data=bytes(value), mime_type=self.mime_type or "application/octet-stream")
        elif isinstance(value, Image | Audio):
            yield EmbeddedResource(uri, data=value.data, mime_type=value.mime_type)
        else:
            yield EmbeddedResource(uri, to_json(value).decode(), mime_type=self.mime_type or "application/json")

    def __repr__(self) -> str:
        return f"<Resource {self.uri!r}>"
