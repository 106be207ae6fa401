"""TM1xx about values: optional parameters, containers, results, blank texts, flattened parameters."""

import pytest

from build.marks import expected
from build.test_definition_rules import HEAD, in_tool


@pytest.mark.row("CO-16")
@pytest.mark.parametrize(
    "parameter",
    [
        "⟦TM128⟧x: Annotated[int, Param(description='N', required=False)]",
        "⟦TM128⟧x: Annotated[list[str], Param(description='N', required=False)]",
        "x: Annotated[int | None, Param(description='N', required=False)]",
        "x: Annotated[Optional[int], Param(description='N', required=False)]",
        "x: Annotated[int, Param(description='N', required=False)] = 5",
        "x: Annotated[int, Param(description='N', required=False, default=5)]",
        "x: Annotated[int, Param(description='N', required=False), Field(default_factory=int)]",
        "x: Annotated[Any, Param(description='N', required=False)]",
        "x: Annotated[Elsewhere, Param(description='N', required=False)]",
        "x: Annotated[int, Param(description='N', required=flag)]",
        "x: Annotated[int, Inject]",
    ],
)
def test_an_optional_parameter_has_a_value_if_it_is_omitted(folder, parameter):
    folder.agrees(f"from elsewhere import Elsewhere\n{in_tool(parameter)}")


@pytest.mark.parametrize(
    "hint",
    [
        *("⟦TM126⟧list", "⟦TM126⟧dict", "⟦TM126⟧set", "⟦TM126⟧tuple", "⟦TM126⟧list | None", "⟦TM126⟧list[dict]"),
        *("⟦TM126⟧'list'", "⟦TM126⟧dict[str, list]", "⟦TM126⟧Optional[list]", "⟦TM126⟧typing.List", "⟦TM126⟧Sequence"),
        *("list[str]", "list[Any]", "dict[str, Any]", "tuple[int, ...]", "set[int]", "str", "Any", "Literal['list']"),
        *("⟦TM126⟧object", "⟦TM126⟧'object'", "dict[str, object]", "object | None", "Annotated[object, Inject]"),
        *("Annotated[list, Inject]", "Annotated[list, Param(schema={'type': 'array'})]", "Sequence[int]", "Elsewhere"),
    ],
)
def test_a_container_names_the_type_of_its_items(folder, hint):
    head = "import typing\nfrom collections.abc import Sequence\nfrom elsewhere import Elsewhere\n"
    code = f"{head}{in_tool(f'x: {hint}')}"

    assert [place for place in folder.places(code) if "TM101" not in place] == expected(code)


@pytest.mark.row("SP-10")
@pytest.mark.parametrize(
    ("words", "returns"),
    [
        *(("", "⟦TM127⟧Callable"), ("", "⟦TM127⟧Callable[[int], str]"), ("", "⟦TM127⟧Callable | None")),
        *(("", "⟦TM127⟧'Callable'"), ("", "⟦TM127⟧list[Callable]"), ("", "⟦TM127⟧types.FunctionType")),
        *(("", "str"), ("", "None"), ("", "Elsewhere"), ("converter=str", "Callable"), ("", "type[int]")),
    ],
)
def test_a_tool_does_not_return_a_function(folder, words, returns):
    folder.agrees(
        f"{HEAD}import types\nfrom collections.abc import Callable\nfrom elsewhere import Elsewhere\n"
        f"@tool({words})\ndef act() -> {returns}:\n    'Do.'\n"
    )


@pytest.mark.parametrize("text", ["''", "' '", "'\\n\\t'"])
def test_a_blank_description_is_no_description(folder, text):
    folder.agrees(f"{HEAD}@tool(description={text})\ndef ⟦TM102⟧act(): ...\n")
    folder.agrees(f"{HEAD}@tool(description={text})\ndef act():\n    'Do it.'\n")


@pytest.mark.row("CO-16")
@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        ("flatten=True", "⟦TM121⟧x: Annotated[Order, Param(description='It')]"),
        ("flatten=True", "x: Annotated[Order, 'It']"),
        ("flatten=True", "x: Order"),
        ("", "x: Annotated[Order, Param(description='It')]"),
    ],
)
def test_a_flattened_parameter_has_no_metadata(folder, words, parameter):
    folder.agrees(f"from elsewhere import Order\n{in_tool(parameter, words)}")
