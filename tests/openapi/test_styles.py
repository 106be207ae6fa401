"""The styles of parameters; the examples are those of the table in OpenAPI 3.1, section "Style Examples"."""

import pytest

from openapi.apis import Recorder, document, operation, parameter
from toolmason import Toolbox
from toolmason.errors import InvalidArguments

ARRAY = ["blue", "black", "brown"]
OBJECT = {"R": 100, "G": 200, "B": 150}


async def send(entry, value, path="/x"):
    server = Recorder()
    api = document({path: {"get": operation(operationId="go", parameters=[entry])}})
    result = await Toolbox.from_openapi(api, client=server.client).call("go", {"color": value})
    return result, server


@pytest.mark.parametrize(
    ("style", "explode", "value", "sent"),
    [
        ("simple", False, "blue", "blue"),
        ("simple", False, ARRAY, "blue,black,brown"),
        ("simple", False, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
        ("label", False, "blue", ".blue"),
        ("label", False, ARRAY, ".blue,black,brown"),
        ("label", True, ARRAY, ".blue.black.brown"),
        ("label", False, OBJECT, ".R,100,G,200,B,150"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, ARRAY, ";color=blue,black,brown"),
        ("matrix", True, ARRAY, ";color=blue;color=black;color=brown"),
        ("matrix", False, OBJECT, ";color=R,100,G,200,B,150"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_a_path_parameter_is_written_in_its_style(style, explode, value, sent):
    _, server = await send(parameter("color", "path", style=style, explode=explode), value, "/x/{color}")

    assert server.sent == f"/x/{sent}"


@pytest.mark.parametrize(
    ("style", "explode", "value", "sent"),
    [
        ("form", True, "blue", "color=blue"),
        ("form", True, ARRAY, "color=blue&color=black&color=brown"),
        ("form", False, ARRAY, "color=blue,black,brown"),
        ("form", True, OBJECT, "R=100&G=200&B=150"),
        ("form", False, OBJECT, "color=R,100,G,200,B,150"),
        ("spaceDelimited", False, ARRAY, "color=blue%20black%20brown"),
        ("pipeDelimited", False, ARRAY, "color=blue%7Cblack%7Cbrown"),
        ("deepObject", True, OBJECT, "color[R]=100&color[G]=200&color[B]=150"),
        ("deepObject", True, {"a": {"b": [1]}}, "color[a][b][0]=1"),
        ("form", True, True, "color=true"),
        ("form", True, "a&b=c#d é", "color=a%26b%3Dc%23d%20%C3%A9"),
        ("form", False, ["a,b"], "color=a%2Cb"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_a_query_parameter_is_written_in_its_style(style, explode, value, sent):
    _, server = await send(parameter("color", style=style, explode=explode), value)

    assert server.sent == f"/x?{sent}"


@pytest.mark.parametrize(
    ("value", "explode", "sent"),
    [(ARRAY, False, "blue,black,brown"), (OBJECT, True, "R=100,G=200,B=150"), (5, False, "5")],
    ids=["list", "object", "number"],
)
async def test_a_header_is_written_in_its_style(value, explode, sent):
    _, server = await send(parameter("color", "header", explode=explode), value)

    assert server.requests[0].headers["color"] == sent


async def test_a_cookie_is_written_as_a_form():
    _, server = await send(parameter("color", "cookie"), "blue; admin=1")

    assert server.requests[0].headers["cookie"] == "color=blue%3B%20admin%3D1"


async def test_a_parameter_with_content_is_json():
    entry = {"name": "color", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}

    _, server = await send(entry, {"a": 1})

    assert server.sent == "/x?color=%7B%22a%22%3A1%7D"


async def test_allow_reserved_keeps_reserved_characters_but_not_those_that_end_a_value():
    _, server = await send(parameter("color", allowReserved=True), "a/b:c&d#e")

    assert server.sent == "/x?color=a/b:c%26d%23e"


async def test_null_and_missing_values_are_not_sent():
    _, server = await send(parameter("color", schema={"type": ["string", "null"]}), None)

    assert server.sent == "/x"


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "\x00", "é"], ids=["line break", "null byte", "not ASCII"])
async def test_a_header_cannot_be_split(value):
    result, server = await send(parameter("color", "header"), value)

    assert isinstance(result.error, InvalidArguments)
    assert server.requests == []


async def test_a_deep_object_is_bounded():
    value = {}
    for _ in range(20):
        value = {"a": value, "b": 1}

    result, server = await send(parameter("color", style="deepObject"), value)

    assert isinstance(result.error, InvalidArguments)
    assert server.requests == []
