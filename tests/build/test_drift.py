"""What `build --check` says: which tool changed, and how."""

import json

import pytest

from core.shop import ORDERS, STOCK, forget
from toolmason.build.compare.drift import find_drift
from toolmason.build.manifest.package_manifest import build, write_file


@pytest.fixture
def shop(make_package):
    folder = make_package(orders=ORDERS, stock=STOCK)
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    return folder


def drift():
    forget("shop")
    return [(one.name, one.message) for one in find_drift(build("shop"))]


def test_a_manifest_that_is_up_to_date_has_no_drift(shop):
    assert drift() == []


def test_a_package_without_a_manifest_drifts(make_package):
    make_package(orders=ORDERS)

    assert drift() == [("_toolmason.json", "the manifest does not exist yet")]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        pytest.param("limit: int = 3", "limit: int", ("find", "input $.limit: now required"), id="required"),
        pytest.param(
            "Find orders.",
            "Seek orders.",
            ("find", "description: changed from 'Find orders.' to 'Seek orders.'"),
            id="description",
        ),
        pytest.param("def find(", "def seek(", ("find", "removed"), id="removed"),
        pytest.param("def find(", "def seek(", ("seek", "added"), id="added"),
        pytest.param("read_only=True", "timeout=5", ("find", "timeout changed from unset to 5"), id="option"),
        pytest.param(
            "destructive=True", "read_only=True", ("drop", "destructive changed from True to unset"), id="effect"
        ),
        pytest.param(
            "-> list[str]",
            "-> list[int]",
            ("find", "output $.result[]: type changed from string to integer"),
            id="output",
        ),
        pytest.param("@prompt", "@prompt(role='assistant')", ("greet", "prompt changed"), id="prompt"),
        pytest.param("def greet", "def welcome", ("greet", "prompt removed"), id="prompt removed"),
        pytest.param("def greet", "def welcome", ("welcome", "prompt added"), id="prompt added"),
        pytest.param("from toolmason", "# a word\nfrom toolmason", ("shop.orders", "source changed"), id="source"),
    ],
)
def test_a_change_of_the_source_is_told(shop, old, new, wanted):
    file = shop / "orders.py"
    file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")

    assert wanted in drift()


def test_a_tool_that_moved_is_told(shop):
    (shop / "goods.py").write_bytes((shop / "stock.py").read_bytes())
    (shop / "stock.py").unlink()

    assert ("count", "moved from shop.stock:count to shop.goods:count") in drift()


def test_what_is_not_listed_counts_too(shop):
    file = shop / "stock.py"
    file.write_text(file.read_text("utf-8") + "\nfrom toolmason import Toolbox\nbox = Toolbox(count)\n", "utf-8")

    assert ("shop", "notes changed") in drift()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"{", "is not valid JSON", id="damaged"),
        pytest.param(b'{"format": "toolmason-manifest", "version": 99}', "version 99", id="another version"),
    ],
)
def test_a_damaged_manifest_is_told_and_can_be_built_again(shop, data, words):
    (shop / "_toolmason.json").write_bytes(data)

    [(name, said)] = drift()

    assert name == "_toolmason.json"
    assert words in said


def test_the_same_facts_in_other_bytes_are_drift(shop):
    file = shop / "_toolmason.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8"))), "utf-8")

    assert drift() == [("_toolmason.json", "formatted differently, with the same content")]
