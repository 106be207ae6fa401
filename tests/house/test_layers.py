"""A module imports only what stands below it; the contracts are in pyproject.toml, and `make check` runs them."""

import tomllib
from graphlib import CycleError, TopologicalSorter

import pytest

from house.source import PACKAGE, ROOT, import_edges, parse, read_package


def ring(edges):
    """One ring of imports, or nothing."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as found:
        return found.args[1]
    return []


def test_no_modules_import_each_other_in_a_ring():
    edges = import_edges(read_package(PACKAGE))

    assert edges
    assert ring(edges) == []


def test_every_package_has_its_place_in_a_layer_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]

    layers = {c["containers"][0]: c.get("exhaustive", False) for c in contracts if c["type"] == "layers"}

    assert layers == dict.fromkeys(["toolmason", "toolmason._core", "toolmason.build", "toolmason.providers"], True)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("import box.high\n", id="plain"),
        pytest.param("from .high import x\n", id="relative"),
        pytest.param("from . import high\n", id="from the package"),
        pytest.param("def f():\n    from box.high import x\n", id="inside a function"),
        pytest.param("if TYPE_CHECKING:\n    from box import high\n", id="for typing only"),
    ],
)
def test_a_ring_is_seen_wherever_its_import_stands(text):
    modules = {"box": parse("box", "", is_package=True), "box.high": parse("box.high", "from box.low import y\n")}

    edges = import_edges({**modules, "box.low": parse("box.low", text)})

    assert set(ring(edges)) == {"box.high", "box.low"}


def test_importing_a_sibling_through_the_root_is_a_ring():
    root = parse("box", "from box.low import y\n", is_package=True)

    edges = import_edges({"box": root, "box.low": parse("box.low", "from box import y\n")})

    assert set(ring(edges)) == {"box", "box.low"}
