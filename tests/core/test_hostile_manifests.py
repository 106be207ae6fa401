"""A manifest that is damaged or made by someone else: it is refused, and never becomes a way to call other code."""

import pytest

from core.shop import ORDERS, edit, loaded
from toolmason import Toolbox
from toolmason._core.load.manifest import MAX_MANIFEST_BYTES, parse_manifest
from toolmason.build.compare.listing import parse_listings
from toolmason.build.manifest.package_manifest import build, write_file
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool


def redirect(path, **modules):
    def change(form):
        form["modules"].update(modules)
        form["tools"][0]["path"] = path

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(redirect("os:system"), "is not the path of a tool", id="another package"),
        pytest.param(redirect("os:system", os=None), "'os' is not a module of 'shop'", id="another package, named"),
        pytest.param(redirect("shop_evil:f", shop_evil=None), "is not a module of", id="a name that begins alike"),
        pytest.param(redirect("shop.orders:a.b.c"), "is not the path of a tool", id="a long way in"),
        pytest.param(redirect("shop.orders"), "is not the path of a tool", id="no name"),
        pytest.param(redirect("shop.orders:find()"), "is not the path of a tool", id="a call"),
        pytest.param(redirect("shop/../os:system"), "is not the path of a tool", id="a file path"),
        pytest.param(lambda form: form.update(package="os"), "is not a module of 'os'", id="another package's name"),
        pytest.param(
            lambda form: form.update(package="../x"), "which is not a package name", id="a package that is none"
        ),
        pytest.param(lambda form: form.update(version=2), "version 2", id="version"),
        pytest.param(lambda form: form.update(version="1"), "version '1'", id="version as a text"),
        pytest.param(lambda form: form.update(format="lock"), "is not a manifest", id="format"),
        pytest.param(lambda form: form.update(tools={}), "'tools' must be a list", id="tools"),
        pytest.param(lambda form: form.update(tools=[5]), "a tool must be an object", id="a tool"),
        pytest.param(lambda form: form.update(modules=[]), "'modules' must be an object", id="modules"),
        pytest.param(lambda form: form["modules"].update({"shop.orders": 5}), "is not a string", id="hash"),
        pytest.param(lambda form: form["tools"][0].pop("name"), "'name' must be a string", id="no name of a tool"),
        pytest.param(lambda form: form["tools"][0].update(name=" "), "a non-empty name", id="an empty name"),
        pytest.param(lambda form: form["tools"][0].update(description=None), "'description'", id="description"),
        pytest.param(lambda form: form["tools"][0].update(title=5), "'title' must be a string", id="title"),
        pytest.param(lambda form: form["tools"][0].update(input_schema=[]), "'input_schema'", id="input schema"),
        pytest.param(lambda form: form["tools"][0].update(output_schema=1), "'output_schema'", id="output schema"),
        pytest.param(lambda form: form["tools"][0].update(options={"x": 1}), "Unknown tool option 'x'", id="option"),
        pytest.param(lambda form: form["tools"][0].update(options={"timeout": "x"}), "timeout='x'", id="timeout"),
        pytest.param(
            lambda form: form["tools"][0].update(options={"timeout": -1}), "positive number of seconds", id="below zero"
        ),
        pytest.param(lambda form: form["tools"][0].update(options={"read_only": "no"}), "read_only=", id="effect"),
        pytest.param(lambda form: form["tools"][0].update(options={"retry": 5}), "retry=5", id="retry"),
        pytest.param(
            lambda form: form["tools"][0].update(options={"retry": {"a": 1}}), "invalid retry", id="retry parts"
        ),
        pytest.param(lambda form: form["tools"][0].update(options={"rate": {"calls": "a"}}), "invalid rate", id="rate"),
        pytest.param(lambda form: form["tools"][0].update(options=[1]), "'options' must be an object", id="options"),
        pytest.param(lambda form: form["prompts"][0].update(role="boss"), "has the invalid role", id="role"),
        pytest.param(lambda form: form.update(notes=5), "'notes' must be a list", id="notes"),
    ],
)
def test_a_manifest_that_says_what_it_must_not_is_refused(shop, change, words):
    edit(shop, change)

    with pytest.raises(ConfigError) as caught:
        Toolbox.from_manifest("shop")

    assert words in str(caught.value)
    assert loaded() == []


@pytest.mark.parametrize("wrong", [{"properties": 5}, {"required": None}, {"properties": {"a": {"type": 5}}}], ids=str)
@pytest.mark.parametrize("provider", ["openai", "openai-chat", "anthropic", "gemini"])
def test_a_schema_of_a_manifest_that_cannot_be_read_is_not_sent(shop, wrong, provider):
    """It is found when it is used: to check a thousand schemas takes a quarter of the time to read them."""
    file = edit(shop, lambda form: form["tools"][0]["input_schema"].update(wrong))

    with pytest.raises(DefinitionError, match="has the wrong type"):
        Toolbox.from_manifest("shop").definitions(provider)
    with pytest.raises(ConfigError, match=r"in 'input_schema' has the wrong type\. Rebuild the file"):
        parse_listings(file.read_bytes(), "the manifest")


@pytest.mark.parametrize(
    "path",
    ["shop.orders:tool", "shop.orders:prompt", "shop.orders:helper", "shop.orders:os.system", "shop.orders:greet"],
)
async def test_only_what_is_declared_as_a_tool_is_called(make_package, path):
    """A decorator, a helper, an imported module and a prompt are in the module, and none of them is a tool."""
    called = "import os\ndef helper(**given):\n    raise AssertionError('called')\n"
    folder = make_package(orders=called + "\n".join(line[4:] for line in ORDERS.splitlines()))
    built = build("shop")
    write_file(built.path, built.data)
    edit(folder, redirect(path))

    result = await Toolbox.from_manifest("shop").call("drop", {"order": "x"})

    assert result.error.code == "execution_error"
    assert "is not a tool. Decorate it" in result.text


async def test_a_tool_is_not_called_under_the_name_of_another(shop):
    def swap(form):
        first, second = (next(tool for tool in form["tools"] if tool["name"] == name) for name in ("find", "drop"))
        first["path"], second["path"] = second["path"], first["path"]

    edit(shop, swap)

    result = await Toolbox.from_manifest("shop").call("find", {"text": "a"})

    assert result.error.code == "execution_error"
    assert "lists it as 'find'" in result.text


async def test_a_manifest_cannot_make_a_destructive_tool_look_harmless(shop):
    def lie(form):
        next(tool for tool in form["tools"] if tool["name"] == "drop")["options"] = {"read_only": True}

    edit(shop, lie)

    result = await Toolbox.from_manifest("shop").select(read_only=True).call("drop", {"order": "x"})

    assert result.error.code == "execution_error"
    assert "It was not run" in result.text


def test_two_tools_of_one_name_in_a_manifest_are_an_error(shop):
    edit(shop, lambda form: form["tools"].append(dict(form["tools"][0])))

    with pytest.raises(DuplicateTool, match=r"shop\.stock:count"):
        Toolbox.from_manifest("shop")


def test_two_tools_of_one_name_cannot_be_compared(shop):
    file = edit(shop, lambda form: form["tools"].append(dict(form["tools"][0])))

    with pytest.raises(ConfigError, match="lists two tools named 'count'"):
        parse_listings(file.read_bytes(), "the manifest")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", "is not valid JSON", id="empty"),
        pytest.param(b'{"format": ', "is not valid JSON", id="cut off"),
        pytest.param(b"\xff\xfe", "is not valid JSON", id="not UTF-8"),
        pytest.param(b"[" * 100_000, "is not valid JSON", id="deep"),
        pytest.param(b"[]", "is not a manifest", id="a list"),
        pytest.param(b'"text"', "is not a manifest", id="a text"),
        pytest.param(b" " * (MAX_MANIFEST_BYTES + 1), "the maximum is", id="huge"),
    ],
)
def test_a_damaged_manifest_is_an_error(data, words):
    with pytest.raises(ConfigError) as caught:
        parse_manifest(data, "the file")

    assert words in str(caught.value)
