import pytest

from toolmason import EmbeddedResource, Image, Text, Toolbox, ToolContext, resource, tool
from toolmason._core.toolbox.toolbox import get_state
from toolmason.errors import DefinitionError, DuplicateTool, InvalidArguments


@resource("config://app")
def settings() -> dict[str, int]:
    """The settings."""
    return {"port": 1}


@resource("user://{id}/profile", mime_type="text/plain")
async def profile(id: int, ctx: ToolContext) -> str:  # noqa: A002 - a name that addresses have
    """A profile."""
    return f"{id} for {ctx['user']}"


@resource("file://{path*}")
def file(path: str) -> bytes:
    """A file."""
    return path.encode()


async def test_a_fixed_address_gives_json():
    found = await Toolbox(settings).read("config://app")

    assert found == (EmbeddedResource("config://app", '{"port":1}', mime_type="application/json"),)


async def test_a_template_gives_typed_parameters_and_injected_ones():
    found = await Toolbox(profile, context={"user": "ada"}).read("user://7/profile")

    assert found[0].text == "7 for ada"


async def test_a_value_that_does_not_fit_is_refused():
    with pytest.raises(InvalidArguments):
        await Toolbox(profile, context={"user": "ada"}).read("user://x/profile")


async def test_a_placeholder_ends_at_a_slash_unless_it_is_starred():
    box = Toolbox(profile, file)

    found = await box.read("file://a/b%20c")

    assert found[0].data == b"a/b c"
    with pytest.raises(KeyError, match="No resource"):
        await box.read("user://a/b/profile")


async def test_a_zero_byte_never_reaches_a_resource():
    with pytest.raises(KeyError):
        await Toolbox(file).read("file://a%00b")


@pytest.mark.parametrize("value", ["text", Text("text"), [Text("text")]], ids=["str", "Text", "list"])
async def test_text_comes_as_text(value):
    @resource("a://b")
    def made():
        return value

    found = await Toolbox(made).read("a://b")

    assert found == (EmbeddedResource("a://b", "text", mime_type="text/plain"),)


async def test_an_image_comes_as_bytes():
    @resource("a://b")
    def made():
        return Image(b"png")

    assert (await Toolbox(made).read("a://b"))[0] == EmbeddedResource("a://b", data=b"png", mime_type="image/png")


def test_reading_works_from_sync_code():
    assert Toolbox(settings).read_sync("config://app")[0].text == '{"port":1}'


def test_resources_are_listed_without_templates_and_survive_views():
    @tool
    def look() -> str:
        return "x"

    box = Toolbox(settings, profile, look)

    assert [link.uri for link in box.resources] == ["config://app"]
    assert [item.uri for item in get_state(box.select("nothing*")).catalog.resources.values()] == [
        "config://app",
        "user://{id}/profile",
    ]


def test_two_resources_of_one_address_are_refused():
    @resource("config://app")
    def other() -> str:
        return ""

    with pytest.raises(DuplicateTool, match="config://app"):
        Toolbox(settings, other)


def test_placeholders_and_parameters_must_agree():
    @resource("user://{name}")
    def made(other: str) -> str:
        return other

    with pytest.raises(DefinitionError, match="placeholders"):
        Toolbox(made)


def test_an_address_needs_a_scheme():
    with pytest.raises(DefinitionError, match="scheme"):
        resource("plain")


def test_a_bundle_may_hold_resources():
    class Shop:
        @resource("shop://hours")
        def hours(self) -> str:
            return "9 to 17"

    assert Toolbox(Shop()).read_sync("shop://hours")[0].text == "9 to 17"


def test_watchers_hear_of_changes_until_they_end_it():
    box, heard = Toolbox(settings), []
    end = box.servers.watch(heard.append)

    box.servers.notify_resource_changed("config://app")
    box.add(profile)
    end()
    end()
    box.servers.notify_resource_changed("config://app")

    assert heard == ["config://app", None]
