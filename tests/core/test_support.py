"""`supported_for`: what it takes, and whether it fits an application."""

import abc
from typing import Protocol, runtime_checkable

import pytest

from toolmason import Toolbox, supported_for, tool
from toolmason._core.load.supported_for import is_supported
from toolmason.errors import DefinitionError


class App:
    pass


class Sub(App):
    pass


def test_the_mark_leaves_the_object_as_it_is():
    @tool
    def double(n: int) -> int:
        return 2 * n

    assert supported_for(App)(double) is double
    assert double(2) == 4


def test_a_bundle_inherits_the_mark_of_its_base():
    @supported_for(App)
    class Bundle: ...

    class Derived(Bundle): ...

    @supported_for(str)
    class Other(Bundle): ...

    assert is_supported(Derived, Sub)
    assert is_supported(Derived(), Sub())
    assert not is_supported(Derived, object)
    assert is_supported(Other, str)
    assert not is_supported(Other, App)


def test_a_registered_subclass_of_an_abstract_class_fits():
    class Base(abc.ABC): ...  # noqa: B024 - subclasses register

    Base.register(App)

    assert is_supported(supported_for(Base)(lambda: None), App)


def test_a_protocol_of_methods_and_of_attributes_is_checked_on_objects_and_classes():
    @runtime_checkable
    class Named(Protocol):
        name: str

        def close(self) -> None: ...

    class Full:
        name = "full"

        def close(self) -> None: ...

    class Half:
        name = "half"

    marked = supported_for(Named)(lambda: None)

    assert [is_supported(marked, app) for app in (Full, Full(), Half, Half())] == [True, True, False, False]


@pytest.mark.parametrize("tags", ["worker", ("night", "worker"), {"worker"}], ids=repr)
def test_a_text_fits_an_application_that_carries_it(tags):
    class Tagged:
        __tags__ = tags

    marked = supported_for("worker", "other")(lambda: None)

    assert is_supported(marked, Tagged)
    assert is_supported(marked, Tagged())
    assert is_supported(marked, "worker")
    assert not is_supported(marked, "work")
    assert not is_supported(marked, App)


@pytest.mark.parametrize("mark", [App, [App], {App}, (App, "x")], ids=["class", "list", "set", "tuple"])
def test_a_module_may_write_its_mark_in_several_ways(mark):
    class Module:
        __supported_for__ = mark

    assert is_supported(Module, Sub)
    assert not is_supported(Module, None)


@pytest.mark.parametrize("wrong", [5, None, [App], App(), lambda: None], ids=["int", "none", "list", "object", "fn"])
def test_what_is_neither_a_class_nor_a_text_is_refused(wrong):
    with pytest.raises(DefinitionError, match="supported_for"):
        supported_for(wrong)


def test_a_protocol_that_cannot_be_checked_is_refused():
    class Unchecked(Protocol):
        def close(self) -> None: ...

    with pytest.raises(DefinitionError, match="runtime_checkable"):
        supported_for(Unchecked)


def test_what_takes_no_attributes_cannot_be_marked():
    with pytest.raises(DefinitionError, match="accepts no attributes"):
        supported_for(App)(5)


def test_a_toolbox_may_be_marked():
    assert not is_supported(supported_for(App)(Toolbox()), object)
