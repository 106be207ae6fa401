"""The server that the official suite wants to see, written as a toolbox, with our public names alone.

`python tests/judges/server_fixture.py PORT [--gateway URL]` serves it over HTTP.
"""

import asyncio
import base64
import os
import sys
from typing import Annotated, Any

from toolmason import (
    Abort,
    Audio,
    EmbeddedResource,
    Image,
    McpServer,
    Message,
    Param,
    Tool,
    Toolbox,
    ToolContext,
    ToolError,
    prompt,
    resource,
    serve,
    tool,
)
from toolmason.mcp import Elicit, Roots, Sample

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
SOUND = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==")
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
YES = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
CONFIRM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}

box = Toolbox(name="conformance")


def add(fn: Any) -> Any:
    box.add(fn)
    return fn


# --- content ---------------------------------------------------------------------------------------


@add
@tool
def test_simple_text() -> str:
    return "This is a simple text response for testing."


@add
@tool
def test_image_content() -> Image:
    return Image(PIXEL)


@add
@tool
def test_audio_content() -> Audio:
    return Audio(SOUND)


@add
@tool
def test_embedded_resource() -> EmbeddedResource:
    return EmbeddedResource("test://embedded-resource", "This is an embedded resource content.", mime_type="text/plain")


@add
@tool
def test_multiple_content_types() -> list[Any]:
    data = EmbeddedResource(
        "test://mixed-content-resource", '{"test":"data","value":123}', mime_type="application/json"
    )
    return ["Multiple content types test:", Image(PIXEL), data]


@add
@tool
async def test_tool_with_logging(ctx: ToolContext) -> str:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log.info(text)
        await asyncio.sleep(0.05)
    return "logged"


@add
@tool
async def test_logging_tool(ctx: ToolContext) -> str:
    ctx.log.info("a record")
    return "logged"


@add
@tool
async def test_tool_with_progress(ctx: ToolContext) -> str:
    for done in (0, 50, 100):
        await ctx.progress(done, 100)
        await asyncio.sleep(0.05)
    return "done"


@add
@tool
def test_error_handling() -> str:
    raise ToolError("This tool intentionally returns an error for testing")


@add
@tool
async def test_reconnection(ctx: ToolContext) -> str:
    await ctx.client.release_connection()
    await asyncio.sleep(0.1)
    return "Reconnection test completed"


# --- questions -------------------------------------------------------------------------------------


@add
@tool
async def test_sampling(prompt: str, ctx: ToolContext) -> str:
    return f"LLM response: {await ctx.client.sample(prompt, max_tokens=100)}"


@add
@tool
async def test_elicitation(message: str, ctx: ToolContext) -> str:
    schema = {
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    }
    answer = await ctx.client.elicit(message, schema)
    return f"User response: action: {answer.action}, content: {dict(answer.content)}"


@add
@tool
async def test_elicitation_sep1034_defaults(ctx: ToolContext) -> str:
    properties = {
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": True},
    }
    answer = await ctx.client.elicit("Please review", {"type": "object", "properties": properties, "required": []})
    return f"Elicitation completed: action={answer.action}, content={dict(answer.content)}"


@add
@tool
async def test_elicitation_sep1330_enums(ctx: ToolContext) -> str:
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    properties = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    answer = await ctx.client.elicit("Please choose", {"type": "object", "properties": properties, "required": []})
    return f"Elicitation completed: action={answer.action}, content={dict(answer.content)}"


@add
@tool
async def test_missing_capability(ctx: ToolContext) -> str:
    return await ctx.client.sample("anything")


@add
@tool
async def test_streaming_elicitation(ctx: ToolContext) -> str:
    await ctx.progress(0, 1)
    answer = await ctx.client.elicit("What is your name?", NAME)
    return f"Hello, {answer.content.get('name')}!"


@add
@tool
async def test_input_required_result_elicitation(ctx: ToolContext) -> str:
    answer = await ctx.client.elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {answer.content.get('name')}!"


@add
@tool
async def test_input_required_result_sampling(ctx: ToolContext) -> str:
    return await ctx.client.sample("What is the capital of France?", max_tokens=100, key="capital_question")


@add
@tool
async def test_input_required_result_list_roots(ctx: ToolContext) -> str:
    return f"Roots: {', '.join(await ctx.client.roots(key='client_roots'))}"


@add
@tool
async def test_input_required_result_request_state(ctx: ToolContext) -> str:
    await ctx.client.elicit("Please confirm", YES, key="confirm")
    return "state-ok"


@add
@tool
async def test_input_required_result_tampered_state(ctx: ToolContext) -> str:
    await ctx.client.elicit("Please confirm", YES, key="confirm")
    return "state-ok"


@add
@tool
async def test_input_required_result_multiple_inputs(ctx: ToolContext) -> str:
    answers = await ctx.client.ask(
        user_name=Elicit("What is your name?", NAME),
        greeting=Sample("Generate a greeting", max_tokens=50),
        client_roots=Roots(),
    )
    return f"{answers['greeting']} {answers['user_name'].content.get('name')} {answers['client_roots']}"


@add
@tool
async def test_input_required_result_multi_round(ctx: ToolContext) -> str:
    first = await ctx.client.elicit("Step 1: What is your name?", NAME, key="step1")
    second = await ctx.client.elicit("Step 2: What is your favorite color?", COLOR, key="step2")
    return f"{first.content.get('name')} likes {second.content.get('color')}"


@add
@tool
async def test_input_required_result_capabilities(ctx: ToolContext) -> str:
    questions: dict[str, Any] = {}
    if "sampling" in ctx.client.capabilities:
        questions["capital_question"] = Sample("What is the capital of France?", max_tokens=100)
    if "elicitation" in ctx.client.capabilities:
        questions["user_name"] = Elicit("What is your name?", NAME)
    return str(await ctx.client.ask(**questions))


# --- schemas and headers ---------------------------------------------------------------------------

box.add(
    Tool.from_schema(
        "json_schema_2020_12_tool",
        "Tool with JSON Schema 2020-12 features",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": False,
        },
        lambda arguments, context: "fits",
    )
)


@add
@tool
def test_region(region: Annotated[str, Param(schema={"type": "string", "x-mcp-header": "Region"})]) -> str:
    return f"in {region}"


# --- changes ---------------------------------------------------------------------------------------


@add
@tool
def test_trigger_tool_change() -> str:
    box.add(Tool.from_function(lambda: "new", name=f"added_{len(box)}", description="A new tool."))
    return "changed"


@add
@tool
def test_trigger_prompt_change() -> str:
    name = f"added_{len(box.prompts)}"

    @prompt(name=name)
    def added() -> str:
        return "new"

    box.add(added)
    return "changed"


# --- tasks -----------------------------------------------------------------------------------------


@add
@tool
def greet(name: str) -> str:
    return f"Hello, {name}!"


@add
@tool(meta={"mcp": {"task": "optional"}})
async def slow_compute(seconds: float, label: str = "") -> str:
    await asyncio.sleep(seconds)
    return f"computed {label}"


@add
@tool(meta={"mcp": {"task": "required"}})
async def failing_job() -> str:
    await asyncio.sleep(0.05)
    raise ToolError("the job failed")


@add
@tool(meta={"mcp": {"task": "optional"}})
async def protocol_error_job() -> str:
    await asyncio.sleep(0.05)
    raise Abort("the job broke")


@add
@tool(meta={"mcp": {"task": "optional"}})
async def confirm_delete(ctx: ToolContext, filename: str = "") -> str:
    answer = await ctx.client.elicit(f"Delete {filename}?", CONFIRM, key="confirm")
    return f"deleted {filename}: {answer.content.get('confirm')}"


@add
@tool(meta={"mcp": {"task": "optional"}})
async def multi_input(ctx: ToolContext) -> str:
    answers = await ctx.client.ask(first=Elicit("First?", NAME), second=Elicit("Second?", NAME))
    return " ".join(str(answer.content) for answer in answers.values())


@add
@tool(meta={"mcp": {"task": "after_input"}})
async def test_tool_with_task(ctx: ToolContext) -> str:
    answer = await ctx.client.elicit("What is your name?", NAME, key="user_name")
    await asyncio.sleep(0.05)
    return f"Hello, {answer.content.get('name')}!"


# --- resources and prompts -------------------------------------------------------------------------


@add
@resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@add
@resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    return PIXEL


@add
@resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:  # noqa: A002 - the suite names it
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@add
@resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    return "Watched resource content"


@add
@prompt(role="user")
def test_simple_prompt() -> str:
    return "This is a simple prompt for testing."


@add
@prompt(role="user")
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@add
@prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:  # noqa: N803 - the suite names it
    embedded = EmbeddedResource(resourceUri, "Embedded resource content for testing.", mime_type="text/plain")
    return [Message("user", embedded), Message("user", "Please process the embedded resource above.")]


@add
@prompt
def test_prompt_with_image() -> list[Message]:
    return [Message("user", Image(PIXEL)), Message("user", "Please analyze the image above.")]


@add
@prompt(role="user")
async def test_input_required_result_prompt(ctx: ToolContext) -> str:
    schema = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
    answer = await ctx.client.elicit("What context should the prompt use?", schema, key="user_context")
    return f"Use this: {answer.content.get('context')}"


def main() -> None:
    port, words = int(sys.argv[1]), sys.argv[2:]
    served = box
    if "--gateway" in words:
        served = Toolbox(McpServer.http("behind", words[words.index("--gateway") + 1]))
    replicated = {"state_key": os.environ["TOOLMASON_STATE_KEY"], "replicas": True} if "--replicas" in words else {}
    serve(served, transport="http", port=port, **replicated)


if __name__ == "__main__":
    main()
