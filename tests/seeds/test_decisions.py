"""Decisions where the seed systems differ (spec/seeds.md §3), C1 to C28; the design pages win where they differ."""

import asyncio
import json
import logging
import re
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from toolmason import Inject, Param, Tool, Toolbox, tool
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool, InvalidArguments, UnknownTool
from toolmason.providers.aliases import PORTABLE_ID


def schema_of(fn: Any) -> dict:
    return Toolbox(fn).tools[0].definition.input_schema


async def call(fn: Any, arguments: Any = None, **words: Any):
    box = Toolbox(fn, **words)
    return await box.call(box.tools[0].name, arguments)


async def value_of(fn: Any, arguments: Any = None, **words: Any) -> Any:
    return (await call(fn, arguments, **words)).unwrap()


# --- types and parameters ----------------------------------------------------------------------


@pytest.mark.row("AJ-4")
def test_c1_integers_are_integers_and_only_any_is_anything():
    def f(i: int, n: float, d: Decimal, b: bool, s: str, a: Any) -> None: ...

    properties = schema_of(f)["properties"]

    kinds = [properties[name].get("type") for name in "indbsa"]
    assert kinds == ["integer", "number", "number", "boolean", "string", None]


def test_c1_a_type_without_a_schema_is_a_definition_error():
    def f(x: asyncio.Event) -> None: ...

    with pytest.raises(DefinitionError, match="'x'"):
        Toolbox(f)


async def test_c1_an_integral_float_is_an_int_and_a_bool_never_is():
    def f(n: int) -> int:
        return n

    assert await value_of(f, '{"n": 5.0}') == 5
    assert isinstance((await call(f, '{"n": true}')).error, InvalidArguments)
    assert isinstance((await call(f, {"n": True})).error, InvalidArguments)


@pytest.mark.row("MA-12")
def test_c2_required_means_no_default_and_none_not_admitted():
    def f(
        a: int,
        b: int | None,
        c: Annotated[int | None, Param(required=False)],
        d: Annotated[int | None, Param(required=True)],
        e: int = 1,
    ) -> None: ...

    assert schema_of(f)["required"] == ["a", "d"]


@pytest.mark.row("CO-6", "MA-12")
async def test_c3_a_type_that_admits_none_is_optional_and_arrives_as_none():
    def f(a: int | None) -> bool:
        return a is None

    assert await value_of(f) is True


async def test_c3_required_wins_and_null_is_still_admitted():
    def f(a: Annotated[int | None, Param(required=True)]) -> bool:
        return a is None

    assert await value_of(f, '{"a": null}') is True
    assert isinstance((await call(f, "{}")).error, InvalidArguments)


def test_c4_required_together_with_a_default_is_a_definition_error():
    def f(a: Annotated[int, Param(required=True)] = 1) -> None: ...
    def g(a: Annotated[int, Param(required=True, default=1)]) -> None: ...

    for fn in (f, g):
        with pytest.raises(DefinitionError, match="'a'"):
            Toolbox(fn)


@pytest.mark.row("MA-11")
@pytest.mark.parametrize("text", ["___NULL___", "___NOT_DEFINED___"])
async def test_c5_the_sentinels_of_other_systems_are_ordinary_text(text):
    def f(a: str = text) -> str:
        return a

    assert await value_of(f) == text
    assert await value_of(f, {"a": "___NULL___"}) == "___NULL___"


@pytest.mark.row("CO-24", "MA-13")
async def test_c6_null_is_none_or_absent_or_a_problem():
    def f(a: int, b: int | None = 1, c: int = 2) -> list:
        return [a, b, c]

    assert await value_of(f, '{"a": 0, "b": null, "c": null}') == [0, None, 2]
    assert [p.path for p in (await call(f, '{"a": null}')).error.problems] == ["$.a"]


@pytest.mark.row("MA-13")
async def test_c7_a_wrong_value_never_falls_back_to_the_default():
    def f(a: int = 1) -> int:
        return a

    assert isinstance((await call(f, '{"a": "many"}')).error, InvalidArguments)


async def test_c8_defaults_are_real_values_and_each_call_has_its_own():
    def f(items: list[int] = [1]) -> list[int]:  # noqa: B006 - that it is safe is the test
        items.append(2)
        return items

    box = Toolbox(f)

    assert [(await box.call("f")).value for _ in range(2)] == [[1, 2], [1, 2]]


def test_c8_a_default_that_does_not_fit_is_a_definition_error():
    def f(a: int = "10") -> None: ...

    with pytest.raises(DefinitionError, match="'10'"):
        Toolbox(f)


# --- placeholders and injection ----------------------------------------------------------------


async def test_c9_placeholders_in_defaults_only_where_marked_and_never_through_model_text(tmp_path):
    def f(
        name: str,
        plain: str = "${name}",
        path: Annotated[str, Param(template=True, default="${project_dir}/${name}${x:-!}$${name}${x}")] = "",
    ) -> list[str]:
        return [plain, path]

    assert await value_of(f, {"name": "${project_dir}"}, project_dir=tmp_path) == [
        "${name}",
        f"{tmp_path}/${{project_dir}}!${{name}}${{x}}",
    ]


async def test_c10_placeholders_in_a_result_only_where_asked():
    def f(name: str, unit: str = "C") -> str:
        return "${name} ${unit} ${other}"

    assert await value_of(f, {"name": "x"}) == "${name} ${unit} ${other}"
    assert (await call(tool(substitute_result=True)(f), {"name": "x", "unit": "F"})).text == "x F ${other}"


async def test_c10_a_default_that_was_used_is_filled_in_too():
    @tool(substitute_result=True)
    def f(name: str, unit: str = "C") -> str:
        return "${name} ${unit}"

    assert (await call(f, {"name": "x"})).text == "x C"


async def test_c10_an_argument_put_into_a_result_is_not_expanded_again():
    @tool(substitute_result=True)
    def f(name: str, unit: str) -> str:
        return "${name}"

    assert (await call(f, {"name": "${unit}", "unit": "C"})).text == "${unit}"


async def test_c11_project_dir_is_hidden_and_the_injected_value_wins(tmp_path, caplog):
    def f(project_dir: Path) -> str:
        return str(project_dir)

    with caplog.at_level(logging.WARNING, logger="toolmason"):
        value = await value_of(f, '{"project_dir": "/etc"}', project_dir=tmp_path)

    assert value == str(tmp_path)
    assert "project_dir" in caplog.text
    assert schema_of(f)["properties"] == {}


async def test_c11_without_a_directory_there_is_a_clear_error_before_the_call():
    ran = []

    def f(project_dir: Path) -> None:
        ran.append(1)

    result = await call(f)

    assert isinstance(result.error.__cause__, ConfigError)
    assert ran == []


def test_c12_what_is_hidden_is_decided_by_the_definition_alone(tmp_path):
    def f(n: int, project_dir: Path, tenant: Annotated[str, Inject]) -> None: ...

    first = Toolbox(f)
    second = Toolbox(f, project_dir=tmp_path, context={"tenant": "acme"})

    assert first["f"].definition == second["f"].definition
    assert list(first["f"].definition.input_schema["properties"]) == ["n"]


# --- names -------------------------------------------------------------------------------------


@pytest.mark.row("CO-3", "SP-6", "MA-9")
def test_c13_the_name_is_the_functions_own_unless_asked_otherwise():
    def getURLForUser() -> None: ...  # noqa: N802 - the case is the test

    names = [
        Toolbox(getURLForUser, **words).tools[0].name for words in ({}, {"naming": "snake"}, {"naming": str.upper})
    ]

    assert names == ["getURLForUser", "get_url_for_user", "GETURLFORUSER"]


async def test_c14_an_empty_name_is_an_error_and_an_unportable_one_is_legal():
    with pytest.raises(DefinitionError):
        Tool.from_schema("", "", {}, lambda arguments, context: None)

    odd = Tool.from_schema("Wetter heute: Prag", "", {}, lambda arguments, context: "ok")

    assert (await Toolbox(odd).call("Wetter heute: Prag")).text == "ok"
    assert not PORTABLE_ID.fullmatch(odd.name)


async def test_c15_look_up_is_exact_then_unique_without_case_and_never_a_guess():
    def made(name: str) -> Tool:
        return Tool.from_schema(name, "", {}, lambda arguments, context: name)

    box = Toolbox(made("Search"), made("read"), made("READ"))

    assert (await box.call("search")).text == "Search"
    assert (await box.call("READ")).text == "READ"
    assert isinstance((await box.call("Read")).error, UnknownTool)


@pytest.mark.row("CO-26")
def test_c16_a_duplicate_names_both_origins_and_can_be_meant():
    def one() -> str:
        return "one"

    def two() -> str:
        return "two"

    box = Toolbox(Tool.from_function(one, name="same"))

    with pytest.raises(DuplicateTool) as caught:
        box.add(Tool.from_function(two, name="same"))
    box.add(Tool.from_function(two, name="same"), replace=True)

    assert "'one'" in str(caught.value)
    assert "'two'" in str(caught.value)
    assert box.call_sync("same").text == "two"


# --- arguments ---------------------------------------------------------------------------------


async def test_c24_an_unknown_tool_is_answered_with_the_nearest_name():
    def get_weather() -> None: ...

    result = await Toolbox(get_weather).call("get_wether")

    assert isinstance(result.error, UnknownTool)
    assert "get_weather" in result.text


@pytest.mark.row("SP-30")
@pytest.mark.parametrize("text", ["", "  ", None, "{}"], ids=repr)
async def test_c25_blank_arguments_are_no_arguments(text):
    def f(n: int = 5) -> int:
        return n

    assert await value_of(f, text) == 5


@pytest.mark.row("MA-29", "SP-53")
@pytest.mark.parametrize("text", ["{", "nonsense", "[1]"], ids=repr)
async def test_c25_arguments_that_cannot_be_read_are_told_to_the_model(text):
    def f(n: int = 5) -> int:
        return n

    assert isinstance((await call(f, text)).error, InvalidArguments)


async def test_c26_every_problem_is_told_at_once_and_nothing_is_half_called():
    ran = []

    def f(a: int, b: str, c: list[int]) -> None:
        ran.append(1)

    result = await call(f, '{"b": 5, "c": [1, "x"]}')

    form = json.loads(result.text)["error"]
    assert sorted(problem["path"] for problem in form["parameters"]) == ["$.a", "$.b", "$.c[1]"]
    assert all(problem["message"] for problem in form["parameters"])
    assert ran == []


async def test_c27_extra_arguments_are_closed_in_the_schema_and_ignored_at_run_time(caplog):
    def f(n: int) -> int:
        return n

    with caplog.at_level(logging.DEBUG, logger="toolmason"):
        value = await value_of(f, '{"n": 1, "noise": 2}')

    assert value == 1
    assert schema_of(f)["additionalProperties"] is False
    assert "ignored" in caplog.text


async def test_c27_extra_may_be_forbidden_or_allowed():
    @tool(extra="forbid")
    def strict(n: int) -> None: ...

    @tool(extra="allow")
    def loose(n: int, **more: Any) -> dict:
        return more

    assert [p.path for p in (await call(strict, '{"n": 1, "noise": 2}')).error.problems] == ["$.noise"]
    assert await value_of(loose, '{"n": 1, "noise": 2}') == {"noise": 2}
    assert schema_of(strict)["additionalProperties"] is False
    assert schema_of(loose)["additionalProperties"] is not False


class Unit(Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


@pytest.mark.parametrize(
    ("hint", "sent", "taken"),
    [
        (int, "5", 5),
        (int, 5.0, 5),
        (float, "2.5", 2.5),
        (bool, "true", True),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Unit, "c", Unit.CELSIUS),
        (Unit, "FAHRENHEIT", Unit.FAHRENHEIT),
        (Literal["C", "F"], "f", "F"),
    ],
    ids=[
        "int text",
        "whole float",
        "float text",
        "bool text",
        "list",
        "dict",
        "enum case",
        "enum name",
        "literal case",
    ],
)
async def test_c28_common_slips_are_repaired_exactly_and_recorded(hint, sent, taken):
    seen = []

    def f(a: hint) -> None:
        seen.append(a)

    result = await call(f, json.dumps({"a": sent}))
    strict = await call(tool(strict_types=True)(f), json.dumps({"a": sent}))

    assert seen == [taken]
    assert [repair.before for repair in result.repairs] == [sent]
    assert isinstance(strict.error, InvalidArguments)


@pytest.mark.parametrize(
    ("hint", "sent"),
    [(int, "5.5"), (int, 5.5), (bool, 1), (bool, "yes"), (bool, 0), (int, True), (str, 5), (list[str], "a,b")],
    ids=["fraction text", "fraction", "one", "yes", "zero", "bool", "number", "commas"],
)
async def test_c28_nothing_is_lost_and_nothing_is_truthy(hint, sent):
    def f(a: hint) -> None: ...

    assert isinstance((await call(f, json.dumps({"a": sent}))).error, InvalidArguments)


def test_every_decision_that_the_core_has_is_tested_by_its_number():
    wanted = {*range(1, 17), *range(24, 32), *range(33, 40), 43, 45, 46, 55, 57, 58}

    files = Path(__file__).parent.glob("test_decisions*.py")
    tested = {int(n) for file in files for n in re.findall(r"def test_c(\d+)_", file.read_text("utf-8"))}

    assert tested == wanted
