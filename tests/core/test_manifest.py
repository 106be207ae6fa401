"""Tools that are listed from a manifest: nothing is imported before a call, and nothing but tools ever is."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from core.shop import ORDERS, STOCK, forget, loaded, names
from toolmason import Toolbox, discover
from toolmason._core.define.tool import compile_tool
from toolmason._core.load.manifest import find_manifest
from toolmason.build.manifest.package_manifest import build, write_file
from toolmason.errors import ConfigError, StaleManifest

# --- listing ---------------------------------------------------------------------------------


@pytest.mark.row("SP-22", "CO-14")
def test_tools_and_prompts_are_listed_without_importing_a_module(shop):
    box = Toolbox.from_manifest("shop")

    assert names(box) == ["count", "drop", "find"]
    assert [prompt.name for prompt in box.prompts] == ["greet"]
    assert box["find"].definition.input_schema["properties"]["limit"] == {"type": "integer", "default": 3}
    assert box["drop"].options.destructive
    assert loaded() == []


def test_definitions_are_those_of_the_functions(shop):
    box = Toolbox.from_manifest("shop")
    listed = {tool.name: tool.definition for tool in box}
    import shop.orders
    import shop.stock

    assert {tool.name: tool.definition for tool in Toolbox(shop.orders, shop.stock)} == listed


def test_the_order_of_parameters_is_that_of_the_function(shop):
    listed = Toolbox.from_manifest("shop")["find"].definition
    import shop.orders

    assert json.dumps(listed.input_schema) == json.dumps(Toolbox(shop.orders)["find"].definition.input_schema)


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        pytest.param(lambda box: box.select(read_only=True), ["find"], id="select by effect"),
        pytest.param(lambda box: box.select(tags=["search"]), ["find"], id="select by tag"),
        pytest.param(lambda box: box.exclude("d*"), ["count", "find"], id="exclude"),
        pytest.param(lambda box: box.prefixed("s_"), ["s_count", "s_drop", "s_find"], id="prefixed"),
        pytest.param(lambda box: box.renamed({"find": "seek"}), ["count", "drop", "seek"], id="renamed"),
        pytest.param(lambda box: box | Toolbox(), ["count", "drop", "find"], id="joined"),
        pytest.param(Toolbox, ["count", "drop", "find"], id="as a source"),
    ],
)
def test_a_view_of_listed_tools_imports_nothing(shop, view, wanted):
    box = view(Toolbox.from_manifest("shop"))

    assert names(box) == wanted
    assert loaded() == []


async def test_an_augmented_view_imports_at_the_first_call(shop):
    from dataclasses import dataclass

    @dataclass
    class Why:
        reason: str

    told = []
    box = Toolbox.from_manifest("shop").augmented(Why, on_arguments=lambda call: told.append(call.arguments))
    schema = box["find"].definition.input_schema
    before = loaded()

    result = await box.call("find", {"text": "a", "limit": 1, "reason": "because"})

    assert before == []
    assert "reason" in schema["properties"]
    assert result.value == ["a"]
    assert [why.reason for why in told] == ["because"]


def test_listing_builds_no_validator_and_loads_no_schema_machinery(shop):
    code = (
        "import sys\n"
        "from toolmason import Toolbox\n"
        "box = Toolbox.from_manifest('shop')\n"
        "[tool.definition for tool in box.prefixed('a_')]\n"
        "found = [name for name in sys.modules if name == 'shop' or name.startswith('shop.')]\n"
        "print(found, 'toolmason._core.define.schema' in sys.modules, 'jsonschema' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(shop.parent)}

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[] False False"


def test_a_thousand_tools_of_a_hundred_modules_are_listed_and_one_module_is_loaded_for_a_call(make_package):
    source = "from toolmason import tool\n" + "".join(
        f"@tool\ndef tool_{{n}}_{number}(a: int, b: str = 'x') -> int:\n    return a\n" for number in range(10)
    )
    make_package(**{f"part_{n}": source.format(n=n) for n in range(100)})
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    box = Toolbox.from_manifest("shop")

    listed = {tool.name: tool.definition for tool in box}
    before = loaded()
    result = box.call_sync("tool_42_7", {"a": 3})

    assert len(listed) == 1000
    assert before == []
    assert result.value == 3
    assert loaded() == ["shop", "shop.part_42"]


# --- calling ---------------------------------------------------------------------------------


async def test_the_first_call_imports_the_one_module_of_the_tool(shop):
    box = Toolbox.from_manifest("shop")

    result = await box.call("find", {"text": "a", "limit": 2})

    assert result.value == ["a", "a"]
    assert loaded() == ["shop", "shop.orders"]


async def test_a_prompt_is_loaded_when_it_is_rendered(shop):
    box = Toolbox.from_manifest("shop")

    [message] = await box.prompt("greet", {"name": "Ada"})

    assert message.text == "Hello Ada"
    assert loaded() == ["shop", "shop.orders"]


async def test_a_tool_can_be_loaded_before_it_is_called(shop):
    box = Toolbox.from_manifest("shop")

    tool = await box.resolve("find")

    assert tool.fn is sys.modules["shop.orders"].find


def test_a_listed_tool_answers_like_the_real_one(shop):
    listed = Toolbox.from_manifest("shop")["find"]

    compiled = compile_tool(listed)
    assert compiled.kind == "sync"
    assert compiled.inputs.validate_json('{"text": "a"}', strict=True) == {"text": "a"}
    assert compiled.output.schema == {"type": "array", "items": {"type": "string"}}
    assert compiled.get_argument("limit", {}) == 3
    assert "shop.orders:find" in listed.origin


@pytest.mark.parametrize("kind", ["object", "class"])
async def test_methods_share_their_object(make_package, kind):
    make_package(
        made="""
        from toolmason import tool

        class Counter:
            def __init__(self):
                self.count = 0

            @tool
            def up(self) -> int:
                self.count += 1
                return self.count

            @tool
            def down(self) -> int:
                self.count -= 1
                return self.count
        """
        + ("\n        counter = Counter()\n" if kind == "object" else "")
    )
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    box = Toolbox.from_manifest("shop")

    counted = [(await box.call(name)).value for name in ("up", "up", "down")]

    assert counted == [1, 2, 1]


async def test_an_object_that_cannot_be_made_costs_the_call(make_package, monkeypatch):
    source = """
        import os
        from toolmason import tool

        class Db:
            def __init__(self):
                self.url = os.environ["SHOP_URL"]

            @tool
            def address(self) -> str:
                return self.url
        """
    make_package(made=source)
    monkeypatch.setenv("SHOP_URL", "x")
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    monkeypatch.delenv("SHOP_URL")
    box = Toolbox.from_manifest("shop")

    first = await box.call("address")
    monkeypatch.setenv("SHOP_URL", "there")
    second = await box.call("address")

    assert "Cannot create the object of 'shop.made:Db': KeyError" in first.text
    assert second.value == "there"


# --- out of date -------------------------------------------------------------------------------


def test_a_module_that_changed_is_imported_with_a_warning_that_says_what_to_do(shop):
    source = (shop / "orders.py").read_text("utf-8").replace("limit: int = 3", "limit: int = 5, page: int = 0")
    (shop / "orders.py").write_text(source, "utf-8")

    with pytest.warns(StaleManifest, match=r"'shop\.orders' has changed .* `toolmason build`") as warned:
        box = Toolbox.from_manifest("shop")

    assert "page" in box["find"].definition.input_schema["properties"]
    assert names(box) == ["count", "drop", "find"]
    assert loaded() == ["shop", "shop.orders"]
    assert [Path(one.filename).name for one in warned] == ["test_manifest.py"]


def test_a_changed_module_brings_its_new_tools_and_not_those_that_are_gone(shop):
    source = (shop / "stock.py").read_text("utf-8").replace("def count()", "def recount()")
    (shop / "stock.py").write_text(source, "utf-8")

    with pytest.warns(StaleManifest):
        box = Toolbox.from_manifest("shop")

    assert names(box) == ["drop", "find", "recount"]


def test_what_a_changed_module_imports_from_another_is_not_listed_twice(make_package):
    folder = make_package(
        init="from toolmason import tool\n@tool\ndef top() -> None: ...\n", orders=ORDERS, stock=STOCK
    )
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    (folder / "__init__.py").write_text(
        "from shop.orders import find\nfrom toolmason import tool\n@tool\ndef top() -> None: ...\n", "utf-8"
    )

    with pytest.warns(StaleManifest):
        box = Toolbox.from_manifest("shop")

    assert names(box) == ["count", "drop", "find", "top"]


@pytest.mark.row("CO-17")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("raise RuntimeError('boom')\n", "are omitted: 'shop.stock': loading failed", id="raises"),
        pytest.param("import no_such_module\n", "no_such_module", id="needs more"),
        pytest.param("raise SystemExit(2)\n", "SystemExit", id="exits"),
        pytest.param(
            "from toolmason import tool\n@tool\ndef count(x) -> int: ...\n",
            "'shop.stock:count' is omitted: function 'count'",
            id="cannot be defined",
        ),
        pytest.param(
            "from toolmason import tool\n@tool\ndef find() -> int: ...\n",
            "'shop.stock:find' is omitted, because 'find' is listed already",
            id="takes a listed name",
        ),
    ],
)
def test_a_changed_module_that_cannot_be_used_costs_its_tools_and_not_the_start(shop, source, words):
    (shop / "stock.py").write_text(source, "utf-8")

    with pytest.warns(StaleManifest) as warned:
        box = Toolbox.from_manifest("shop")

    assert names(box) == ["drop", "find"]
    assert any(words in str(one.message) for one in warned)


async def test_a_definition_that_changed_elsewhere_is_noticed_at_the_call(make_package):
    """The hash of a module does not cover a class that it imports."""
    folder = make_package(
        models="from pydantic import BaseModel\nclass Order(BaseModel):\n    number: int\n",
        orders="from toolmason import tool\nfrom shop.models import Order\n@tool\ndef put(order: Order) -> str:\n"
        "    return str(order)\n",
    )
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    (folder / "models.py").write_text(
        "from pydantic import BaseModel\nclass Order(BaseModel):\n    name: str\n", "utf-8"
    )
    box = Toolbox.from_manifest("shop")

    with pytest.warns(StaleManifest, match="the code is used"):
        result = await box.call("put", {"order": {"name": "a"}})

    assert result.value == "name='a'"


def test_byte_code_alone_is_enough(shop):
    import compileall

    compileall.compile_dir(shop, legacy=True, quiet=1)
    for file in shop.glob("*.py"):
        file.unlink()
    import importlib

    importlib.invalidate_caches()

    box = Toolbox.from_manifest("shop")

    assert box.call_sync("count").value == 7


# --- gone, moved, swapped ----------------------------------------------------------------------


@pytest.mark.row("CO-17")
def test_a_module_that_is_gone_costs_its_tools_and_not_the_start(shop):
    (shop / "stock.py").unlink()

    with pytest.warns(StaleManifest, match=r"'shop\.stock' of .* no longer exists, so its tools are omitted"):
        box = Toolbox.from_manifest("shop")

    assert names(box) == ["drop", "find"]


async def test_a_module_that_goes_after_listing_costs_the_call(shop):
    box = Toolbox.from_manifest("shop")
    (shop / "stock.py").unlink()

    result = await box.call("count")

    assert result.error.code == "execution_error"
    assert "module 'shop.stock' not found. Reinstall the package" in result.text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("x = 1", "is not a tool. Decorate it", id="gone"),
        pytest.param("def count() -> int: ...", "is not a tool. Decorate it", id="not decorated"),
        pytest.param(
            "from toolmason import tool\n@tool(name='other')\ndef count() -> int: ...",
            "is named 'other'",
            id="renamed",
        ),
        pytest.param(
            "from toolmason import tool\n@tool(destructive=True)\ndef count() -> int: ...",
            "has destructive=True",
            id="destructive",
        ),
        pytest.param(
            "from toolmason import tool\n@tool(approval=True)\ndef count() -> int: ...",
            "has approval=True",
            id="approval",
        ),
        pytest.param("raise SystemExit(2)", "SystemExit", id="exits"),
        pytest.param("import no_such_thing", "no_such_thing", id="needs more"),
    ],
)
async def test_a_module_that_changes_after_listing_is_refused_where_it_matters(shop, source, words):
    box = Toolbox.from_manifest("shop")
    (shop / "stock.py").write_text(source, "utf-8")

    result = await box.call("count")

    assert result.error.code == "execution_error"
    assert words in result.text


async def test_a_failed_load_is_tried_again(shop):
    box = Toolbox.from_manifest("shop")
    good = (shop / "stock.py").read_text("utf-8")
    (shop / "stock.py").write_text("raise RuntimeError('not yet')", "utf-8")
    first = await box.call("count")
    (shop / "stock.py").write_text(good, "utf-8")

    second = await box.call("count")

    assert not first.ok
    assert second.value == 7


# --- finding it --------------------------------------------------------------------------------


def test_a_manifest_is_found_by_its_path_and_by_its_folder(shop):
    by_file = Toolbox.from_manifest(shop / "_toolmason.json")
    by_folder = Toolbox.from_manifest(shop)

    assert names(by_file) == names(by_folder) == ["count", "drop", "find"]
    assert by_file.call_sync("count").value == 7


def test_a_package_inside_another_is_found_without_importing_either(make_package):
    make_package("shop.inner", stock=STOCK)
    built = build("shop.inner")
    write_file(built.path, built.data)
    forget("shop")

    box = Toolbox.from_manifest("shop.inner")

    assert names(box) == ["count"]
    assert loaded() == []
    assert box.call_sync("count").value == 7


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("no_such_package", "Package 'no_such_package'", id="package"),
        pytest.param("json.no_such", "Package 'json.no_such'", id="package inside"),
        pytest.param("keyword", "is a single module", id="module"),
        pytest.param("json", "has no manifest", id="package without one"),
        pytest.param("no/such/file.json", "No manifest at", id="file"),
        pytest.param("", "is not a package name", id="nothing"),
    ],
)
def test_a_manifest_that_is_not_there_is_an_error(source, words):
    with pytest.raises(ConfigError) as caught:
        Toolbox.from_manifest(source)

    assert words in str(caught.value)


def test_the_manifest_of_another_package_is_refused(shop, make_package):
    other = make_package("other")
    (other / "_toolmason.json").write_bytes((shop / "_toolmason.json").read_bytes())

    with pytest.raises(ConfigError, match="is for the package 'shop'"):
        Toolbox.from_manifest("other")


async def test_a_copy_of_a_manifest_lists_and_does_not_run(shop, tmp_path):
    copy = tmp_path / "copy.json"
    copy.write_bytes((shop / "_toolmason.json").read_bytes())
    box = Toolbox.from_manifest(copy)

    result = await box.call("count")

    assert names(box) == ["count", "drop", "find"]
    assert "is not in the package 'shop' that Python imports" in result.text
    assert loaded() == []


async def test_a_package_in_a_zip_file_is_listed_and_called(shop, tmp_path, monkeypatch):
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(shop.iterdir()):
            packed.write(file, f"shop/{file.name}")
    monkeypatch.setattr(sys, "path", [str(archive), *(place for place in sys.path if place != str(tmp_path))])
    box = Toolbox.from_manifest("shop")
    before = loaded()

    result = await box.call("count")

    assert before == []
    assert result.value == 7
    assert str(archive) in sys.modules["shop.stock"].__file__


def test_a_namespace_package_is_listed_from_the_folder_that_has_the_manifest(shop, tmp_path, monkeypatch):
    (shop / "__init__.py").unlink()
    (tmp_path / "more" / "shop").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "more"))

    box = Toolbox.from_manifest("shop")

    assert box.call_sync("count").value == 7


def test_a_namespace_package_with_two_manifests_is_an_error(shop, tmp_path, monkeypatch):
    (shop / "__init__.py").unlink()
    (tmp_path / "more" / "shop").mkdir(parents=True)
    (tmp_path / "more" / "shop" / "_toolmason.json").write_bytes((shop / "_toolmason.json").read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path / "more"))

    with pytest.raises(ConfigError, match="more than one manifest"):
        find_manifest("shop")


# --- plugins -----------------------------------------------------------------------------------


def offered(folder, value="shop"):
    """Write the metadata of an installed distribution that offers a package of this folder."""
    metadata = folder.parent / "shop-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n", "utf-8")
    (metadata / "entry_points.txt").write_text(f"[toolmason.tools]\nshop = {value}\n", "utf-8")


def test_a_plugin_with_a_manifest_is_discovered_without_importing_it(shop):
    offered(shop)

    box = discover()

    assert names(box) == ["count", "drop", "find"]
    assert box.problems == ()
    assert loaded() == []
    assert box.call_sync("count").value == 7


def test_a_plugin_whose_manifest_is_damaged_is_told_and_left_out(shop):
    offered(shop)
    (shop / "_toolmason.json").write_text("{", "utf-8")

    box = discover()

    assert names(box) == []
    assert "is not valid JSON" in str(box.problems[0])


def test_a_plugin_that_is_for_some_applications_is_loaded_after_all(make_package):
    source = "from toolmason import supported_for, tool\n@supported_for('desk')\n@tool\ndef write() -> None: ...\n"
    folder = make_package(init=source)
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    offered(folder)

    class Desk:
        __tags__ = ("desk",)

    assert names(discover(Desk())) == ["write"]
    assert names(discover(object())) == []
