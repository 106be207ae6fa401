"""Which tools an object, a class, a module or a target holds."""

import sys
import types

import pytest

from toolmason import Toolbox, prompt, tool, tools_from
from toolmason._core.catalog.discovery import load_target
from toolmason.errors import ConfigError, DefinitionError


class Base:
    """A bundle with tools of every kind."""

    @tool(read_only=True, description="Look it up.")
    def find(self, text: str) -> str:
        return f"base {text}"

    @tool(name="remove_it", destructive=True)
    def remove(self) -> str:
        """Remove it."""
        return "base removed"

    @staticmethod
    @tool
    def static(n: int) -> int:
        return n

    @classmethod
    @tool
    def of_class(cls) -> str:
        return cls.__name__

    @tool
    async def later(self) -> str:
        return "later"

    def helper(self) -> None:
        """Not a tool."""


def names(source) -> list[str]:
    return [found.name for found in tools_from(source)]


# --- bundles -----------------------------------------------------------------------------------


@pytest.mark.row("MA-2", "SP-12", "CO-8")
def test_the_tools_of_an_object_come_in_the_order_they_are_written():
    assert names(Base()) == ["find", "remove_it", "static", "of_class", "later"]


async def test_the_methods_of_an_object_are_bound_to_it():
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        @tool
        def step(self, by: int = 1) -> int:
            self.count += by
            return self.count

    one, other = Counter(), Counter()
    box = Toolbox(one)
    await box.call("step", {"by": 2})
    await box.call("step")

    assert (one.count, other.count) == (3, 0)
    assert "self" not in box["step"].definition.input_schema["properties"]


@pytest.mark.row("CO-8", "SP-9")
def test_a_class_gives_its_static_and_class_methods():
    class Free:
        @staticmethod
        @tool
        def static(n: int) -> int:
            return n

        @classmethod
        @tool
        def of_class(cls) -> str:
            return cls.__name__

    box = Toolbox(Free)

    assert names(Free) == ["static", "of_class"]
    assert box.call_sync("of_class").value == "Free"
    assert box.call_sync("static", {"n": 3}).value == 3


def test_the_decorators_may_stand_in_either_order():
    class Free:
        @tool
        @staticmethod
        def static(n: int) -> int:
            return n

        @tool
        @classmethod
        def of_class(cls) -> str:
            return cls.__name__

    box = Toolbox(Free())

    assert box.call_sync("static", {"n": 3}).value == 3
    assert box.call_sync("of_class").value == "Free"


@pytest.mark.row("CO-8")
def test_a_class_with_instance_methods_is_refused_with_their_names():
    with pytest.raises(DefinitionError, match=r"find, remove, later") as caught:
        tools_from(Base)

    assert "Base(...)" in str(caught.value)
    with pytest.raises(DefinitionError, match="find"):
        Toolbox(Base)


@pytest.mark.parametrize("source", [object(), object, types.ModuleType("empty")], ids=["object", "class", "module"])
def test_a_source_without_tools_is_an_error_that_names_it(source):
    with pytest.raises(DefinitionError, match="No @tool found"):
        tools_from(source)


@pytest.mark.row("SP-9")
def test_underscore_names_count_where_they_are_decorated():
    class Bundle:
        @tool
        def _private(self) -> None: ...

        def _other(self) -> None: ...

    assert names(Bundle()) == ["_private"]


# --- inheritance -------------------------------------------------------------------------------


@pytest.mark.row("MA-2", "CO-19")
def test_inherited_tools_are_found():
    class Child(Base):
        @tool
        def own(self) -> None: ...

    assert set(names(Child())) == {"find", "remove_it", "static", "of_class", "later", "own"}


@pytest.mark.row("CO-19")
async def test_an_override_replaces_the_tool_and_keeps_its_metadata():
    class Child(Base):
        def find(self, text: str, limit: int = 1) -> str:
            return f"child {text} {limit}"

        def remove(self) -> str:
            return "child removed"

    box = Toolbox(Child())

    assert (await box.call("find", {"text": "x", "limit": 2})).value == "child x 2"
    assert (await box.call("remove_it")).value == "child removed"
    assert box["find"].description == "Look it up."
    assert box["find"].options.read_only is True
    assert box["remove_it"].description == "Remove it."
    assert box["remove_it"].options.destructive is True
    assert len(box) == 5


def test_an_override_that_is_decorated_again_has_only_its_own_metadata():
    class Child(Base):
        @tool
        def find(self, text: str) -> str:
            """Find it the child's way."""
            return text

    found = Toolbox(Child())["find"]

    assert found.options.read_only is None
    assert found.description == "Find it the child's way."


@pytest.mark.row("CO-19")
def test_an_excluded_override_drops_the_tool():
    class Child(Base):
        @tool.exclude
        def find(self, text: str) -> str:
            return text

    class Grandchild(Child):
        pass

    assert "find" not in names(Child())
    assert "find" not in names(Grandchild())


def test_an_override_that_is_no_method_drops_the_tool():
    class Child(Base):
        find = None

    assert "find" not in names(Child())


def test_a_tool_comes_back_where_it_is_decorated_again():
    class Child(Base):
        @tool.exclude
        def find(self, text: str) -> str:
            return text

    class Grandchild(Child):
        @tool
        def find(self, text: str) -> str:
            return text

    assert "find" in names(Grandchild())


def test_the_nearest_of_two_parents_wins():
    class Left:
        @tool(description="left")
        def same(self) -> str:
            return "left"

    class Right:
        @tool(description="right")
        def same(self) -> str:
            return "right"

    class Both(Left, Right):
        pass

    box = Toolbox(Both())

    assert box["same"].description == "left"
    assert box.call_sync("same").value == "left"


def test_a_plain_mixin_overrides_a_decorated_method():
    class Mixin:
        def find(self, text: str) -> str:
            return f"mixin {text}"

    class Child(Mixin, Base):
        pass

    box = Toolbox(Child())

    assert box.call_sync("find", {"text": "x"}).value == "mixin x"
    assert box["find"].description == "Look it up."


# --- what goes wrong in a bundle is told -------------------------------------------------------


def test_a_broken_tool_beside_a_prompt_is_still_told():
    class Bundle:
        @prompt
        def start(self) -> str:
            return "Go"

        @tool
        def broken(self, untyped) -> None: ...

    with pytest.raises(DefinitionError, match="untyped"):
        Toolbox(Bundle())


def test_instance_methods_of_a_class_beside_a_static_prompt_are_still_told():
    class Bundle:
        @staticmethod
        @prompt
        def start() -> str:
            return "Go"

        @tool
        def work(self) -> None: ...

    with pytest.raises(DefinitionError, match="work"):
        Toolbox(Bundle)


def test_a_property_of_a_bundle_is_not_run_while_looking():
    class Bundle:
        @property
        def connection(self) -> object:
            raise AssertionError("opened while looking for tools")

        @tool
        def work(self) -> None: ...

    assert names(Bundle()) == ["work"]


# --- modules -----------------------------------------------------------------------------------


def test_a_module_gives_its_decorated_functions_once():
    @tool
    def f() -> None: ...

    module = types.ModuleType("m")
    module.f = module.alias = f
    module.g = lambda: None
    module.Base = Base

    assert names(module) == ["f"]


# --- targets -----------------------------------------------------------------------------------

SOURCE = """
from toolmason import Toolbox, tool

@tool
def f() -> str:
    return "from the file"

class Nested:
    box = Toolbox(f)

box = Toolbox(f)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with modules, as the working directory; what it loads is forgotten afterwards."""
    (tmp_path / "target_app.py").write_text(SOURCE, "utf-8")
    (tmp_path / "target_broken.py").write_text("1 / 0\n", "utf-8")
    (tmp_path / "target_lacking.py").write_text("import no_such_module_anywhere\n", "utf-8")
    (tmp_path / "target_beside.py").write_text("from target_app import box\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("target_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "target",
    ["target_app:box", "target_app.py:box", "./target_app.py:box", "target_app:Nested.box", "target_beside.py:box"],
)
def test_a_target_names_a_thing_in_a_module_or_a_file(project, target):
    assert load_target(target).call_sync("f").value == "from the file"


@pytest.mark.parametrize("target", ["target_app", "target_app.py"])
def test_a_target_without_a_name_is_the_module(project, target):
    assert Toolbox(load_target(target)).call_sync("f").value == "from the file"


def test_a_file_may_be_named_by_its_whole_path(project):
    assert load_target(f"{project}/target_app.py:box").call_sync("f").ok


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("target_nothing:box", "target_nothing"),
        ("target_app:bax", "bax"),
        ("target_app:Nested.bax", "bax"),
        ("target_nothing.py:box", "target_nothing.py"),
        (":box", "not a module path"),
        ("target_broken", "ZeroDivisionError"),
        ("target_broken.py", "ZeroDivisionError"),
        ("target_lacking", "no_such_module_anywhere"),
    ],
)
def test_a_target_that_cannot_be_loaded_is_told_with_the_part_that_fails(project, target, words):
    with pytest.raises(ConfigError, match=words):
        load_target(target)
