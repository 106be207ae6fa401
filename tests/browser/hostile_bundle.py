"""Tools as an attacker would define them: names, texts, schemas and results that try to break the page."""

from toolmason import ResourceLink, Tool, Toolbox, tool

MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script></style></textarea>"
HIDDEN = "\u202e\u200b\x1b]0;broken\x07"


def make(name: str, schema: dict, result: object = "ok", description: str = "A tool.") -> Tool:
    return Tool.from_schema(name, description, schema, lambda arguments, context: result)


@tool
def identify(number: int) -> dict[str, int]:
    """Return a number that JavaScript would round."""
    return {"number": number}


links = [
    ResourceLink("https://evil.example/login", name="https://bank.example/login"),
    ResourceLink("javascript:document.title='broken'", name="click"),
    ResourceLink(" javascript:document.title='broken'", name="click"),
    ResourceLink("data:text/html,<script>alert(1)</script>", name="click"),
]
box = Toolbox(
    make(f"markup{MARKUP}", {"properties": {MARKUP: {"type": "string", "description": MARKUP, "enum": [MARKUP, "b"]}}}),
    make("answers", {"properties": {}}, f"{MARKUP}{HIDDEN}", f"{MARKUP}{HIDDEN}"),
    make("links", {"properties": {}}, links),
    make("hidden", {"properties": {}}, "\u200b" * 200_000, "\u200b" * 200_000),
    make("prototype", {"properties": {"__proto__": {"type": "integer"}, "constructor": {"type": "integer"}}}),
    make("itself", {"type": "object", "properties": {"a": {"$ref": "#"}}}),
    make("many_items", {"properties": {"a": {"type": "array", "items": {"type": "string"}, "minItems": 10_000_000}}}),
    make("many_fields", {"properties": {f"field {number}": {"type": "string"} for number in range(5000)}}),
    identify,
)
