"""Addresses and the templates that servers write for them."""

import pytest

from toolmason._core.catalog.uri_templates import measure_specificity


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("notes://{id}", "notes://patient-4711"),
        ("notes://{id}/text", "notes://a/text"),
        ("file:///{+path}", "file:///a/b/c"),
        ("file:///{path*}", "file:///a/b"),
        ("file://{/parts*}", "file:///a/b"),
        ("search://items{?q,page}", "search://items?q=x"),
        ("search://items{?q}", "search://items"),
        ("a://{x}-{y}", "a://1-2"),
        ("a://b", "a://b"),
    ],
)
def test_an_address_fits(template, uri):
    assert measure_specificity(template, uri)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("notes://{id}", "notes://"),
        ("notes://{id}", "notes://a/b"),
        ("notes://{id}", "notes://a?b"),
        ("notes://{id}", "other://a"),
        ("notes://{id}/text", "notes://a"),
        ("notes://{id}/text", "notes:///text"),
        ("a://{x}-{y}", "a://12"),
        ("a://b", "a://b/c"),
        ("a://{x", "a://b"),
        ("{+all}", "notes://a"),
        ("{scheme}://{+all}", "notes://a"),
        ("notes{+all}", "notes://a"),
        ("", "notes://a"),
    ],
)
def test_an_address_does_not_fit(template, uri):
    assert measure_specificity(template, uri) is None


def test_the_template_that_says_more_is_closer():
    assert measure_specificity("a://b/{x}", "a://b/c") > measure_specificity("a://{+x}", "a://b/c")


def test_a_template_of_very_many_places_is_read_once():
    template = "a://" + "{+x}a" * 20_000 + "b"

    assert measure_specificity(template, "a://" + "ca" * 200_000) is None
