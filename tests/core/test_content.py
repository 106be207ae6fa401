"""Content parts take data in the forms that applications have it in."""

import base64
import importlib
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest

from toolmason import Audio, Image, McpServer, Toolbox

PIXEL = b"\x89PNG pixel"
ENCODED = base64.b64encode(PIXEL).decode()


@pytest.mark.row("AJ-7", "P20")
@pytest.mark.parametrize(
    "data",
    [PIXEL, bytearray(PIXEL), ENCODED, f"{ENCODED[:4]}\n{ENCODED[4:]}", f"data:image/png;base64,{ENCODED}"],
    ids=repr,
)
def test_the_data_of_an_image_is_bytes_or_base64_text(data):
    assert Image(data) == Image(PIXEL, "image/png")


def test_the_type_of_a_data_url_is_read():
    assert Image(f"data:image/gif;base64,{ENCODED}").mime_type == "image/gif"


@pytest.mark.row("AJ-7", "P20")
async def test_an_image_of_base64_text_crosses_the_wire():
    def draw() -> Image:
        return Image(ENCODED, "image/jpg")

    async with Toolbox(McpServer.of("art", Toolbox(draw))) as box:
        result = await box.call("draw")

    assert result.content == (Image(PIXEL, "image/jpeg"),)


@pytest.mark.row("P20")
@pytest.mark.parametrize("text", ["https://example.com/a.png", "folder/a.png"], ids=["address", "path"])
async def test_other_text_is_an_error_result_that_says_what_to_pass(text):
    def draw() -> Image:
        return Image(text)

    async with Toolbox(McpServer.of("art", Toolbox(draw, on_error="message"))) as box:
        result = await box.call("draw")

    assert not result.ok
    assert "Image.from_file(path)" in result.text
    assert "ResourceLink(uri)" in result.text


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="the data is int"):
        Image(3)


@pytest.mark.row("AJ-7")
def test_the_usual_name_of_jpeg_is_read_as_the_registered_one():
    assert Image(PIXEL, "image/jpg").mime_type == "image/jpeg"


def test_a_path_is_read(tmp_path):
    (tmp_path / "a.gif").write_bytes(PIXEL)

    assert Image(tmp_path / "a.gif") == Image.from_file(str(tmp_path / "a.gif")) == Image(PIXEL, "image/gif")


@pytest.mark.row("AJ-11")
def test_a_suffix_of_another_kind_is_refused(tmp_path):
    for name in ("a.unknown", "a", "a.wav"):
        (tmp_path / name).write_bytes(PIXEL)
        with pytest.raises(ValueError, match="does not say an image type"):
            Image.from_file(tmp_path / name)

    assert Image.from_file(tmp_path / "a", "image/png") == Image(PIXEL)
    assert Audio.from_file(tmp_path / "a.wav").mime_type in ("audio/wav", "audio/x-wav")


@pytest.mark.row("AJ-11")
@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
def test_a_resource_of_a_package_is_read(tmp_path, monkeypatch, zipped):
    place = tmp_path / ("art.zip" if zipped else "art")
    if zipped:
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr("drawings/__init__.py", "")
            archive.writestr("drawings/logo.jpg", PIXEL)
    else:
        Path(place / "drawings").mkdir(parents=True)
        (place / "drawings" / "__init__.py").write_text("")
        (place / "drawings" / "logo.jpg").write_bytes(PIXEL)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "drawings", raising=False)
    importlib.invalidate_caches()

    assert Image.from_file(files("drawings") / "logo.jpg") == Image(PIXEL, "image/jpeg")
