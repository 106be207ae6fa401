"""What the root promises: its names, their docstrings, and a sync twin for each async method."""

import inspect
from functools import cached_property
from importlib.resources import files

import pytest

import toolmason
from house.source import ROOT

# Async methods that an application does not call.
CALLED_BY_US_OR_BY_A_TOOL = {
    "Tool.invoke",  # the engine calls it; a subclass writes it
    "ToolContext.progress",  # a tool calls it, inside a running call
    "Chat.stream",  # a stream has no end to run to; `send_sync` is its sync face
    "SqliteMemory.append",  # the chat calls it
    "SqliteMemory.append_once",  # the chat calls it
    "SqliteMemory.load",  # the chat calls it
    "SqliteMemory.load_all",  # the chat calls it
    "SqliteMemory.replace_once",  # the chat calls it
    "WindowMemory.append",  # the chat calls it
    "WindowMemory.append_once",  # the chat calls it
    "WindowMemory.load",  # the chat calls it
    "WindowMemory.load_all",  # the chat calls it
    "WindowMemory.replace_once",  # the chat calls it
}


PACKAGES = ("chat", "errors", "extend", "mcp", "models", "providers", "testing")
"""The public packages beside the root."""


def exported():
    """Every public name of the root and of the public packages, with its value."""
    yield from ((name, getattr(toolmason, name)) for name in toolmason.__all__)
    for package in PACKAGES:
        module = getattr(toolmason, package)
        yield package, module
        yield from ((f"{package}.{name}", getattr(module, name)) for name in module.__all__)


def is_ours(value):
    return getattr(value, "__module__", "").partition(".")[0] == "toolmason"


def members(cls):
    """The public methods and properties that a class of ours has, inherited ones included."""
    kinds = (staticmethod, classmethod, property, cached_property)
    for name in dir(cls):
        static = inspect.getattr_static(cls, name)
        owner = next((base for base in cls.__mro__ if name in vars(base)), cls)
        if not name.startswith("_") and is_ours(owner) and (inspect.isfunction(static) or isinstance(static, kinds)):
            yield name, static if isinstance(static, property | cached_property) else getattr(cls, name)


def has_docstring(value):
    text = inspect.getdoc(value) or ""
    # A dataclass without a docstring gets its signature as one.
    return bool(text) and not (inspect.isclass(value) and text.startswith(f"{value.__name__}("))


def undocumented(names):
    for name, value in names:
        if inspect.isclass(value):
            yield from ([] if has_docstring(value) else [name])
            yield from (f"{name}.{member}" for member, found in members(value) if not has_docstring(found))
        elif inspect.isroutine(value) or inspect.ismodule(value):
            yield from ([] if has_docstring(value) else [name])


def is_async(function):
    returns = str(getattr(function, "__annotations__", {}).get("return", ""))
    return inspect.iscoroutinefunction(function) or returns.startswith(("Awaitable[", "Coroutine["))


def parameters(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def without_twin(cls):
    """The async methods of a class with no sync twin of the same parameters, and the twins of nothing."""
    found = {name: member for name, member in members(cls) if inspect.isroutine(member)}
    for name, member in found.items():
        twin = found.get("close_sync" if name == "aclose" else f"{name}_sync")
        if is_async(member) and (twin is None or parameters(twin) != parameters(member)):
            yield f"{cls.__name__}.{name}"
        if name.endswith("_sync") and name != "close_sync" and name.removesuffix("_sync") not in found:
            yield f"{cls.__name__}.{name}"


def test_the_root_exports_what_we_promised():
    assert sorted(toolmason.__all__) == (ROOT / "tests" / "public_names.txt").read_text("utf-8").split()


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_every_promised_name_can_be_reached(package):
    module = getattr(toolmason, package) if package else toolmason

    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018 - reading it is the act


def test_the_root_stays_small():
    assert len(toolmason.__all__) <= 46


def test_the_package_says_that_it_is_typed():
    assert files("toolmason").joinpath("py.typed").is_file()


def test_every_public_name_has_a_docstring():
    assert sorted(undocumented(exported())) == []


def test_every_async_method_has_a_sync_twin_with_the_same_parameters():
    classes = {value for name, value in exported() if "." not in name and inspect.isclass(value)}

    lonely = {name for cls in classes for name in without_twin(cls)}

    assert sorted(lonely - CALLED_BY_US_OR_BY_A_TOOL) == []


def test_the_toolbox_can_be_called_both_ways():
    names = dict(members(toolmason.Toolbox))

    assert {"call", "call_sync", "call_all", "call_all_sync"} <= set(names)
    assert is_async(names["call"])


@pytest.mark.parametrize(
    ("method", "twin"),
    [
        pytest.param("async def run(self, a): ...", "", id="no twin"),
        pytest.param("async def run(self, a): ...", "def run_sync(self, b): ...", id="other parameter"),
        pytest.param("async def run(self, a=1): ...", "def run_sync(self, a=2): ...", id="other default"),
        pytest.param("def run(self, a) -> 'Awaitable[int]': ...", "", id="awaitable without async def"),
    ],
)
def test_a_missing_or_different_twin_is_seen(method, twin):
    namespace = {"__name__": "toolmason"}
    exec(f"class Box:\n    {method}\n    {twin}\n", namespace)  # noqa: S102 - the text is the parameter above

    assert list(without_twin(namespace["Box"])) == ["Box.run"]


def test_a_missing_docstring_is_seen_on_classes_methods_and_properties():
    namespace = {"__name__": "toolmason"}
    text = "@dataclass\nclass Box:\n    a: int\n    def run(self): ...\n    @property\n    def size(self): ...\n"
    exec(f"from dataclasses import dataclass\n{text}", namespace)  # noqa: S102 - the text stands above

    assert list(undocumented([("Box", namespace["Box"])])) == ["Box", "Box.run", "Box.size"]
