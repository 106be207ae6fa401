"""What `toolmason build` writes: what is in it, what is not, and the same bytes wherever it is built."""

import compileall
import importlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from toolmason.build.manifest.package_manifest import build, build_target, locate_package, write_file
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool

ORDERS = '''
    from typing import Annotated

    from toolmason import Param, prompt, tool


    @tool(read_only=True, title="Find", tags=["b", "a"], timeout=5)
    def find(text: Annotated[str, Param(description="What")], limit: int = 3) -> list[str]:
        """Find orders."""
        return [text] * limit


    @prompt(role="user")
    def greet(name: str) -> str:
        """Greet someone."""
        return name
'''


def names(built):
    return [tool["name"] for tool in built.content["tools"]]


def test_a_tool_is_written_with_its_definition_options_path_and_source_hash(make_package):
    make_package(orders=ORDERS)

    built = build("shop")

    [found] = built.content["tools"]
    assert found["path"] == "shop.orders:find"
    assert (found["name"], found["title"], found["description"]) == ("find", "Find", "Find orders.")
    assert found["input_schema"]["properties"]["text"] == {"type": "string", "description": "What"}
    assert found["output_schema"]["properties"]["result"] == {"type": "array", "items": {"type": "string"}}
    assert found["options"] == {"read_only": True, "tags": ["a", "b"], "timeout": 5}
    assert list(built.content["modules"]) == ["shop.orders"]
    assert len(built.content["modules"]["shop.orders"]) == 64


def test_a_prompt_is_written_with_its_role(make_package):
    make_package(orders=ORDERS)

    [found] = build("shop").content["prompts"]

    assert found["path"] == "shop.orders:greet"
    assert (found["name"], found["role"], found["description"]) == ("greet", "user", "Greet someone.")


def test_parameters_stay_in_the_order_they_are_written(make_package):
    make_package(orders="from toolmason import tool\n@tool\ndef f(zeta: int, alpha: int) -> None: ...\n")

    [found] = json.loads(build("shop").data)["tools"]

    assert list(found["input_schema"]["properties"]) == ["zeta", "alpha"]


def test_keys_of_ours_are_in_order(make_package):
    make_package(orders=ORDERS)

    form = json.loads(build("shop").data)

    assert list(form) == sorted(form)
    assert all(list(entry) == sorted(entry) for entry in (*form["tools"], *form["prompts"]))
    assert all(list(entry["options"]) == sorted(entry["options"]) for entry in form["tools"])


SHUFFLED = '''
    from dataclasses import dataclass
    from pydantic import BaseModel
    from toolmason import Retry, tool


    class Words(BaseModel):
        chosen: set[str] = {"alpha", "beta", "gamma", "delta"}


    @tool(meta={"scopes": {"read", "write", "admin"}}, tags={"x", "y", "z"}, retry=Retry(on=(OSError, KeyError)))
    def shuffle(words: Words, more: frozenset[str] = frozenset({"one", "two", "three"})) -> dict[str, set[int]]:
        """Shuffle."""
        return {}
'''


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_the_bytes_are_the_same_in_every_process_and_folder(make_package, tmp_path, seed):
    make_package(words=SHUFFLED, orders=ORDERS)
    elsewhere = tmp_path / "another" / "place"
    elsewhere.mkdir(parents=True)
    (elsewhere / "shop").symlink_to(tmp_path / "shop")
    imports = "import sys; from toolmason.build.manifest.package_manifest import build"
    code = f"{imports}; sys.stdout.buffer.write(build('shop').data)"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(elsewhere)}

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=60)

    assert done.stdout == build("shop").data
    assert str(tmp_path).encode() not in done.stdout


def test_line_ends_do_not_change_the_hash(make_package):
    folder = make_package(orders=ORDERS)
    before = build("shop").data

    (folder / "orders.py").write_bytes((folder / "orders.py").read_bytes().replace(b"\n", b"\r\n"))

    assert build("shop").data == before


def test_every_module_is_looked_into_and_a_tool_is_listed_where_it_is_written(make_package):
    make_package("shop.inner", deep="from toolmason import tool\n@tool\ndef deep() -> None: ...\n")
    make_package("shop", init="from shop.orders import find\nfrom shop.inner.deep import deep\n", orders=ORDERS)

    built = build("shop")

    assert [tool["path"] for tool in built.content["tools"]] == ["shop.inner.deep:deep", "shop.orders:find"]


def test_tool_objects_and_the_tools_of_objects_are_listed(make_package):
    make_package(
        made="""
        from toolmason import Tool, tool

        def plain(n: int) -> int:
            return n

        renamed = Tool.from_function(plain, name="other")
        by_hand = Tool.from_schema("by_hand", "By hand.", {"properties": {"n": {}}}, lambda given, context: "x")

        class Orders:
            @tool
            def open_order(self, n: int) -> int:
                return n

        orders = Orders()
        """
    )

    built = build("shop")

    paths = {tool["name"]: tool["path"] for tool in built.content["tools"]}
    assert paths == {
        "other": "shop.made:renamed",
        "by_hand": "shop.made:by_hand",
        "open_order": "shop.made:orders.open_order",
    }
    assert built.notes == []


def test_a_class_that_needs_no_arguments_is_listed_and_what_it_extends_is_not(make_package):
    make_package(
        made="""
        from toolmason import tool

        class Base:
            @tool
            def size(self) -> int:
                return 1

        class Child(Base):
            def size(self) -> int:
                return 2
        """
    )

    built = build("shop")

    assert [tool["path"] for tool in built.content["tools"]] == ["shop.made:Child.size"]


@pytest.mark.row("CO-14")
def test_a_class_is_described_without_creating_an_instance(make_package):
    make_package(
        made='''
        from dataclasses import dataclass
        from toolmason import prompt, tool

        class Base:
            def __init__(self, url, *more, pool=3, **rest):
                raise RuntimeError("no instance at build time")

            @tool
            def drop(self, name: str) -> None:
                """Drop a table."""

            @prompt
            def ask(self) -> str: ...

        class Db(Base):
            def drop(self, name: str) -> None: ...

            @tool
            @staticmethod
            def version() -> int:
                return 3

        @dataclass
        class Files:
            root: str
            depth: int = 1

            @tool
            @staticmethod
            def kinds() -> list[str]:
                return []

        class Plain(dict):
            @tool
            def size(self) -> int:
                return 0
        '''
    )

    built = build("shop")

    assert built.content["classes"] == {"shop.made:Db": ["url"], "shop.made:Plain": []}
    assert names(built) == ["drop", "kinds", "size", "version"]
    drop = built.content["tools"][0]
    assert (drop["path"], drop["description"]) == ("shop.made:Db.drop", "Drop a table.")
    assert [prompt["path"] for prompt in built.content["prompts"]] == ["shop.made:Db.ask"]


def test_classes_that_an_application_chooses_between_may_have_tools_of_one_name(make_package):
    source = "class {}:\n    def __init__(self, url): ...\n    @tool\n    def query(self) -> str: ...\n"
    make_package(made="from toolmason import tool\n" + source.format("Postgres") + source.format("Sqlite"))

    built = build("shop")

    assert [tool["path"] for tool in built.content["tools"]] == ["shop.made:Postgres.query", "shop.made:Sqlite.query"]


def test_two_tools_of_one_name_in_a_class_with_arguments_are_an_error(make_package):
    make_package(
        made="from toolmason import tool\nclass Db:\n    def __init__(self, url): ...\n    @tool(name='a')\n"
        "    def one(self) -> str: ...\n    @tool(name='a')\n    def two(self) -> str: ...\n"
    )

    with pytest.raises(DuplicateTool):
        build("shop")


@pytest.mark.parametrize(
    ("source", "note"),
    [
        pytest.param(
            "class Db:\n    def __init__(self, url): ...\n    @tool\n    def drop(self) -> None: ...\n",
            "shop.made:Db: needs constructor arguments (url), so pass an instance of it",
            id="a class that needs arguments",
        ),
        pytest.param(
            "class _Db:\n    @tool\n    def drop(self) -> None: ...\n",
            "shop.made:_Db: a private or abstract class; its tools are not listed: drop",
            id="a private class",
        ),
        pytest.param(
            "@tool\ndef a() -> None: ...\nbox = Toolbox(a, approve='all')\n",
            "shop.made:box: a Toolbox; the policy for its tools is code and not listed: a",
            id="a toolbox",
        ),
        pytest.param(
            "from toolmason import supported_for\n@supported_for('desk')\n@tool\ndef a() -> None: ...\n",
            "shop.made:a: marked with @supported_for, so not listed",
            id="for some applications",
        ),
        pytest.param(
            "from toolmason import supported_for\n@supported_for('desk')\nclass A:\n    @tool\n    def a(self): ...\n",
            "shop.made:A: marked with @supported_for, so not listed",
            id="a class for some applications",
        ),
        pytest.param(
            "from toolmason import supported_for\nclass A:\n    @supported_for('x')\n    @tool\n    def a(self): ...",
            "shop.made:A.a: marked with @supported_for, so not listed",
            id="a method for some applications",
        ),
        pytest.param(
            "__supported_for__ = ('desk',)\n@tool\ndef a() -> None: ...\n",
            "shop.made: marked with @supported_for, so not listed",
            id="a module for some applications",
        ),
        pytest.param(
            "class Source:\n    def __tools__(self):\n        raise OSError\nsource = Source()\n",
            "shop.made:source: a Source; the policy for its tools is code and not listed: none",
            id="a source that fails",
        ),
        pytest.param(
            "class Server:\n    def __remote__(self, host): ...\nserver = Server()\n",
            "shop.made:server: a Server; the tools of a server are not listed",
            id="a remote server",
        ),
        pytest.param(
            "@tool(meta={'fine': 1, 'object': object()})\ndef a() -> None: ...\n",
            "shop.made:a: meta['object'] has no JSON form, so it is available only after loading",
            id="meta that JSON cannot say",
        ),
        pytest.param(
            "from pathlib import Path\n@tool\ndef a(where: Path = Path(__file__).parent) -> None: ...\n",
            "shop.made:a: its definition contains a path of the build machine",
            id="a path of this machine",
        ),
    ],
)
def test_what_cannot_be_listed_is_said(make_package, source, note):
    make_package(made=f"from toolmason import Toolbox, tool\n{source}")

    built = build("shop")

    assert [found for found in built.notes if found.startswith(note)]


def test_a_manifest_says_whether_tools_are_left_out_for_some_applications(make_package):
    make_package(made="from toolmason import supported_for, tool\n@supported_for('x')\n@tool\ndef a() -> None: ...\n")
    make_package("other", orders=ORDERS)

    partial, whole = build("shop"), build("other")

    assert (partial.content["partial"], names(partial)) == (True, [])
    assert (whole.content["partial"], names(whole)) == (False, ["find"])


def test_a_program_is_not_run_to_look_into_it(make_package):
    make_package(__main__="import toolmason\nraise SystemExit(3)\n", orders=ORDERS)

    built = build("shop")

    assert names(built) == ["find"]
    assert built.notes == ["shop.__main__: skipped, because importing it runs the program"]


def test_code_is_named_and_not_stored(make_package):
    make_package(
        made="""
        from toolmason import tool

        def ask(arguments, context):
            return True

        @tool(approval=ask, preview=lambda arguments: "x", on_error="redact", timeout=None, retry=None)
        def pay() -> None: ...
        """
    )

    [found] = build("shop").content["tools"]

    assert found["options"] == {
        "approval": {"code": "shop.made:ask"},
        "on_error": "redact",
        "preview": {"code": "shop.made:<lambda>"},
        "retry": None,
        "timeout": None,
    }


def test_modules_can_be_left_out(make_package):
    make_package(orders=ORDERS, broken="raise RuntimeError('no')\n")

    built = build("shop", exclude=["shop.brok*"])

    assert names(built) == ["find"]


@pytest.mark.parametrize(
    ("sources", "error", "words"),
    [
        pytest.param(
            {"broken": "raise RuntimeError('boom')"}, ConfigError, "'shop.broken': loading failed", id="raises"
        ),
        pytest.param({"broken": "raise SystemExit"}, ConfigError, "'shop.broken': loading failed", id="exits"),
        pytest.param({"broken": "def ("}, ConfigError, "SyntaxError", id="syntax"),
        pytest.param({"broken": "import no_such_module"}, ConfigError, "Install the missing module", id="needs more"),
        pytest.param(
            {"broken": "from toolmason import tool\n@tool\ndef f(x): ...\n"},
            DefinitionError,
            "has no type",
            id="untyped",
        ),
        pytest.param(
            {"broken": "from toolmason import tool\n@tool\ndef read_result() -> str: ...\n"},
            DefinitionError,
            "the name of a built-in tool",
            id="a name of ours",
        ),
        pytest.param(
            {"broken": "from toolmason import tool\n@tool(description='\\ud800')\ndef f() -> str: ...\n"},
            DefinitionError,
            "tool 'f' cannot be written as JSON",
            id="half a character",
        ),
    ],
)
def test_what_cannot_be_built_is_an_error(make_package, sources, error, words):
    make_package(**sources)

    with pytest.raises(error) as caught:
        build("shop")

    assert words in str(caught.value)


def test_two_tools_of_one_name_are_an_error_that_names_both_places(make_package):
    make_package(orders=ORDERS, more="from toolmason import tool\n@tool\ndef find() -> None: ...\n")

    with pytest.raises(DuplicateTool) as caught:
        build("shop")

    assert "orders.py" in str(caught.value)
    assert "more.py" in str(caught.value)


def test_a_single_module_has_no_folder_for_a_manifest(make_package, tmp_path):
    make_package()
    (tmp_path / "alone.py").write_text("x = 1\n", "utf-8")

    with pytest.raises(ConfigError, match="is a single module"):
        build("alone")


@pytest.mark.parametrize("name", ["", "no-name", "a..b", "../shop", "1x"])
def test_what_is_no_name_of_a_package_is_refused(name):
    with pytest.raises(ConfigError, match="is not a package name"):
        build(name)


def test_a_namespace_package_in_one_folder_is_built(make_package, tmp_path):
    folder = make_package(orders=ORDERS)
    (folder / "__init__.py").unlink()

    built = build("shop")

    assert names(built) == ["find"]
    assert built.path == tmp_path / "shop" / "_toolmason.json"


def test_a_namespace_package_in_two_folders_is_an_error(make_package, tmp_path, monkeypatch):
    folder = make_package(orders=ORDERS)
    (folder / "__init__.py").unlink()
    (tmp_path / "more" / "shop").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "more"))

    with pytest.raises(ConfigError, match="is a namespace package in 2 folders"):
        build("shop")


def test_a_package_in_a_zip_file_cannot_be_built(make_package, tmp_path, monkeypatch):
    folder = make_package(orders=ORDERS)
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        for file in folder.iterdir():
            packed.write(file, f"packed/{file.name}")
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))

    with pytest.raises(ConfigError, match="is in an archive"):
        build("packed")


def test_a_module_without_source_is_listed_with_a_note(make_package):
    folder = make_package(orders=ORDERS)
    compileall.compile_dir(folder, legacy=True, quiet=1)
    (folder / "orders.py").unlink()
    importlib.invalidate_caches()

    built = build("shop")

    assert built.content["modules"] == {"shop.orders": None}
    assert built.notes == ["shop.orders: has no Python source, so changes are not detected"]


def test_a_folder_is_built_by_its_path_wherever_it_is(make_package, tmp_path, monkeypatch):
    folder = make_package("shop.inner", orders=ORDERS)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])

    assert locate_package(str(folder)) == ("shop.inner", tmp_path)
    built = build_target(str(folder))

    assert built.content["package"] == "shop.inner"
    assert str(tmp_path) not in sys.path


def test_another_package_of_the_same_name_is_noticed(make_package, tmp_path):
    make_package(orders=ORDERS)
    build("shop")
    (tmp_path / "copy" / "shop").mkdir(parents=True)
    (tmp_path / "copy" / "shop" / "__init__.py").touch()

    with pytest.raises(ConfigError, match="Python finds 'shop' at"):
        build_target(str(tmp_path / "copy" / "shop"))


def test_a_file_is_written_whole_and_only_when_it_changes(tmp_path):
    file = tmp_path / "_toolmason.json"

    written = [write_file(file, b"one"), write_file(file, b"one"), write_file(file, b"two")]

    assert written == [True, False, True]
    assert [path.name for path in tmp_path.iterdir()] == ["_toolmason.json"]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="Cannot write"):
        write_file(Path(tmp_path, "no", "folder.json"), b"x")
