"""Addresses that are laid over templates."""

import re
from itertools import product

import pytest

from toolmason import Toolbox, resource
from toolmason._core.catalog.uri_templates import MAX_URI_LENGTH, UriTemplate
from toolmason.errors import DefinitionError

TEMPLATES = ["a{x}-{y}", "{x}-{y}-{z}", "{+x}/{y}-{+z}", "{x*}a{y}", "{x}{y}", "-{x}/", "{x}--{y}", "{+x}/-/{+y}/-"]


def expected(template: str, uri: str) -> dict[str, str] | None:
    """What a pattern of the regular kind finds, which is what templates have always meant."""
    parts = re.split(r"(\{[^}]*\})", template)
    pattern = ""
    for part in parts:
        name = part.strip("{+*}")
        wide = "+" in part or "*" in part
        pattern += f"(?P<{name}>{'.+' if wide else '[^/]+'})" if part.startswith("{") else re.escape(part)
    found = re.fullmatch(pattern, uri)
    return None if found is None else found.groupdict()


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_short_address_is_parted_as_by_a_pattern(template: str):
    known = UriTemplate.parse(template)
    addresses = ["".join(letters) for length in range(8) for letters in product("a/-", repeat=length)]

    different = [uri for uri in addresses if known.match(uri) != expected(template, uri)]

    assert different == []


@pytest.mark.timeout(30)
@pytest.mark.parametrize("template", ["cal://{year}-{month}-{day}", "cal://{+a}-{+b}-{+c}-{d}-{e}"])
def test_t14_an_address_that_almost_fits_is_refused_before_anybody_waits(template: str):
    """A pattern needs half an hour for this one."""
    uri = "cal://" + "-" * (MAX_URI_LENGTH - 7) + "/"

    assert UriTemplate.parse(template).match(uri) is None


def test_t11_an_address_that_is_too_long_fits_nothing():
    template = UriTemplate.parse("cal://{day}")

    assert template.match("cal://" + "x" * (MAX_URI_LENGTH - 6)) is not None
    assert template.match("cal://" + "x" * (MAX_URI_LENGTH - 5)) is None


def test_two_placeholders_of_one_name_are_refused():
    @resource("user://{name}/{name}")
    def made(name: str) -> str:
        return name

    with pytest.raises(DefinitionError, match="two placeholders are named 'name'"):
        Toolbox(made)


@pytest.mark.parametrize(
    "value",
    ["..", "%2e%2e", "..%2Fsecret", "%2e%2e%2fsecret", "..%5csecret", "%2Fetc%2Fhostname", "a%2Fb", "a\\b", "a%5Cb",
     "a%00b", "a%0Ab", "a%7f", "a%C2%85b", "a\x1bb"],
)  # fmt: skip
def test_t9_a_plain_placeholder_holds_one_step_of_a_path_and_no_more(value: str):
    assert UriTemplate.parse("files://{name}").match(f"files://{value}") is None


@pytest.mark.parametrize(
    "value",
    ["../a", "a/../b", "a/..", "..%2Fa", "a%2F..%2Fb", "%2e%2e/a", "..%5Ca", "a\\..\\b", "a%00b", "a%0Db", "a\nb"],
)
def test_t9_a_wide_placeholder_never_leads_up(value: str):
    assert UriTemplate.parse("files://{+path}").match(f"files://{value}") is None


@pytest.mark.parametrize(
    ("value", "read"), [("a%20b", "a b"), ("..a", "..a"), ("a..b", "a..b"), ("%252F", "%2F"), ("é", "é")]
)
def test_what_only_looks_like_a_way_out_is_read(value: str, read: str):
    assert UriTemplate.parse("files://{name}").match(f"files://{value}") == {"name": read}


def test_a_wide_placeholder_holds_slashes_however_they_are_written():
    assert UriTemplate.parse("files://{path*}").match("files://a/b%2Fc...d/.") == {"path": "a/b/c...d/."}
