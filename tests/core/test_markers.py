"""Markers of parameters in places where they have no effect: a model would fill what the application must."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from toolmason import Depends, Inject, Param, ProjectDir, Tool, Toolbox, prompt, resource
from toolmason.errors import DefinitionError


def open_session() -> str:
    return "session"


def make_function(hint: Any, *default: Any):
    def act(tenant): ...

    act.__annotations__ = {"tenant": hint, "return": str}
    act.__defaults__ = default or None
    return act


@pytest.mark.parametrize(
    ("hint", "default", "fix"),
    [
        pytest.param(str, Inject("tenant"), "Annotated[str, Inject(...)]", id="Inject(...)"),
        pytest.param(str, Inject, "Annotated[str, Inject(...)]", id="Inject"),
        pytest.param(dict[str, int], Depends(open_session), "Annotated[dict[str, int], Depends(...)]", id="Depends"),
        pytest.param(int, Param(default=3), "Annotated[int, Param(...)]", id="Param"),
        pytest.param(Path, ProjectDir, "Annotated[Path, ProjectDir]", id="ProjectDir"),
        pytest.param(Annotated[str, "Who"], Inject("tenant"), "Annotated[str, Inject(...)]", id="described"),
        pytest.param(Annotated[str, Inject("tenant")], Inject, "Annotated[str, Inject(...)]", id="twice"),
    ],
)
def test_a_marker_as_a_default_is_refused_with_the_fix(hint, default, fix):
    with pytest.raises(DefinitionError, match=r"'tenant' has .* as its default") as caught:
        Tool.from_function(make_function(hint, default))

    assert f"Write `tenant: {fix.replace('Path', 'pathlib.Path')}`." in str(caught.value)


@pytest.mark.parametrize(
    "hint",
    [Annotated[str, Inject] | None, list[Annotated[str, Inject("tenant")]], Annotated[str, Depends]],
    ids=["optional", "list", "class"],
)
def test_a_marker_inside_of_a_type_is_refused(hint):
    with pytest.raises(DefinitionError, match="inside of its type, which has no effect"):
        Tool.from_function(make_function(hint))


@pytest.mark.parametrize("decorate", [prompt, resource("shop://{tenant}")], ids=["prompt", "resource"])
def test_prompts_and_resources_refuse_it_as_well(decorate):
    with pytest.raises(DefinitionError, match="as its default"):
        Toolbox(decorate(make_function(str, Inject("tenant"))))


def test_so_do_factories():
    factory = make_function(str, Inject("tenant"))

    with pytest.raises(DefinitionError, match="as its default"):
        Tool.from_function(make_function(Annotated[str, Depends(factory)]))


class Model(BaseModel):
    tenant: str = Inject("tenant")


@dataclass
class Data:
    tenant: str = Param(description="Who")


class Marked(TypedDict):
    tenant: Annotated[str, Inject("tenant")]


@pytest.mark.parametrize("kind", [Model, list[Data], Marked], ids=["model", "dataclass", "TypedDict"])
def test_a_field_is_not_injected(kind):
    with pytest.raises(DefinitionError, match=r"Field 'tenant' of '(Model|Data|Marked)'"):
        Tool.from_function(make_function(kind))
