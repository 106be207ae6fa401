"""What the application knows and the model must not: context values, injection, and facts about the call."""

import asyncio
import json
import logging
import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from toolmason import Config, Inject, ProjectDir, Retry, Toolbox, ToolCall, ToolContext, prompt, tool
from toolmason.errors import ConfigError, ExecutionError


@dataclass
class Database:
    url: str


@dataclass
class Deps:
    db: Database
    tenant: str = "from deps"


# --- the context itself ------------------------------------------------------------------------


def test_a_context_is_a_mapping_of_its_values():
    ctx = ToolContext(tenant="acme", user=7)

    assert ctx["tenant"] == "acme"
    assert dict(ctx) == {"tenant": "acme", "user": 7}
    assert len(ctx) == 2
    assert ctx.get("nothing") is None
    assert ctx.deps is None


@pytest.mark.row("SP-35")
def test_a_context_is_frozen():
    ctx = ToolContext(deps=1, tenant="acme")

    with pytest.raises(AttributeError):
        ctx.deps = 2
    with pytest.raises(AttributeError):
        ctx.tenant = "other"
    with pytest.raises(TypeError):
        ctx["tenant"] = "other"


def test_the_values_of_a_context_may_be_secret_and_are_not_shown():
    assert "hunter2" not in repr(ToolContext(deps={"key": "hunter2"}, key="hunter2"))


@pytest.mark.parametrize("fact", ["call_id", "tool_name", "call"])
def test_a_context_outside_a_call_says_so(fact):
    with pytest.raises(ConfigError, match="does not belong to a call"):
        getattr(ToolContext(), fact)


@pytest.mark.row("SP-36")
async def test_defaults_of_the_toolbox_and_values_of_the_call_merge_key_by_key_and_the_call_wins():
    @tool
    async def see(ctx: ToolContext) -> dict:
        return dict(ctx)

    box = Toolbox(see, context={"tenant": "acme", "user": "ada"})

    assert (await box.call("see")).value == {"tenant": "acme", "user": "ada"}
    assert (await box.call("see", context={"user": "bob", "trace": 1})).value == {
        "tenant": "acme",
        "user": "bob",
        "trace": 1,
    }
    assert (await box.call("see")).value == {"tenant": "acme", "user": "ada"}


async def test_the_deps_of_the_call_win_and_those_of_the_toolbox_stand_in():
    @tool
    async def see(ctx: ToolContext) -> str:
        return ctx.deps.url

    box = Toolbox(see, context=ToolContext(deps=Database("ours")))

    assert (await box.call("see")).value == "ours"
    assert (await box.call("see", context=ToolContext(user="ada"))).value == "ours"
    assert (await box.call("see", context=ToolContext(deps=Database("theirs")))).value == "theirs"


async def test_calls_side_by_side_have_each_their_own_context():
    @tool
    async def see(ctx: ToolContext) -> tuple:
        await asyncio.sleep(0)
        return ctx["user"], ctx.call_id

    box = Toolbox(see)
    calls = [box.call(ToolCall(f"c{n}", "see"), context={"user": n}) for n in range(20)]

    results = await asyncio.gather(*calls)

    assert [result.value for result in results] == [(n, f"c{n}") for n in range(20)]


@pytest.mark.row("SP-25", "SP-35")
async def test_nothing_of_the_context_is_in_the_definition():
    @tool
    async def see(
        n: int,
        *,
        ctx: ToolContext,
        config: Config,
        project_dir: Path,
        folder: Annotated[Path, ProjectDir],
        db: Annotated[Database, Inject],
        tenant: Annotated[str, Inject("tenant")],
        call: ToolCall,
    ) -> None: ...

    schema = Toolbox(see)["see"].definition.input_schema

    assert list(schema["properties"]) == ["n"]
    assert schema["required"] == ["n"]


# --- facts about the call ----------------------------------------------------------------------


async def test_a_tool_learns_about_its_call():
    seen = {}

    @tool(timeout=30)
    async def see(ctx: ToolContext) -> None:
        seen.update(
            call_id=ctx.call_id,
            tool_name=ctx.tool_name,
            session_id=ctx.session_id,
            attempt=ctx.attempt,
            cancelled=ctx.cancelled,
            left=ctx.deadline - time.monotonic(),
            raw=ctx.call.raw,
        )

    await Toolbox(see).call(ToolCall("c-1", "see", '{"extra": 1}'), context={"session_id": "s-1"})

    assert seen.pop("left") == pytest.approx(30, abs=5)
    assert seen == {
        "call_id": "c-1",
        "tool_name": "see",
        "session_id": "s-1",
        "attempt": 1,
        "cancelled": False,
        "raw": '{"extra": 1}',
    }


async def test_there_is_no_session_unless_the_application_gave_one():
    @tool
    async def see(ctx: ToolContext) -> bool:
        return ctx.session_id is None

    assert (await Toolbox(see).call("see")).value is True


async def test_the_log_of_a_tool_carries_its_call_and_name(caplog):
    @tool
    def note(ctx: ToolContext) -> None:
        ctx.log.warning("half way")

    with caplog.at_level(logging.WARNING):
        await Toolbox(note).call(ToolCall("c-1", "note"))

    [record] = [record for record in caplog.records if record.getMessage() == "half way"]
    assert (record.call_id, record.tool) == ("c-1", "note")
    assert record.name.startswith("toolmason")


async def test_progress_can_be_awaited_or_simply_called():
    @tool
    async def waits(ctx: ToolContext) -> str:
        await ctx.progress(1, 2, "half")
        return "done"

    @tool
    def blocks(ctx: ToolContext) -> str:
        ctx.progress(1, 2, "half")
        return "done"

    results = await Toolbox(waits, blocks).call_all([("waits", {}), ("blocks", {})])

    assert [result.value for result in results] == ["done", "done"]


# --- injected parameters -----------------------------------------------------------------------


@pytest.mark.row("CO-25", "SP-25")
async def test_the_context_is_found_by_its_type_in_any_position():
    @tool
    async def first(ctx: ToolContext, n: int) -> tuple:
        return ctx.tool_name, n

    @tool
    async def last(n: int, the_context: ToolContext[Deps | None]) -> tuple:
        return the_context.tool_name, n

    @tool
    async def keyword(n: int, *, ctx: ToolContext | None = None) -> tuple:
        return ctx.tool_name, n

    @tool
    async def positional(n: int, ctx: ToolContext, /) -> tuple:
        return ctx.tool_name, n

    @tool
    def blocks(ctx: "ToolContext", n: int) -> tuple:
        return ctx.tool_name, n

    box = Toolbox(first, last, keyword, positional, blocks)

    for name in ("first", "last", "keyword", "positional", "blocks"):
        assert (await box.call(name, {"n": 1})).value == (name, 1)


@pytest.mark.row("MA-18")
async def test_the_configuration_is_injected_by_its_type():
    @tool
    async def prefix(config: Config) -> str:
        return config.get("example.prefix", "")

    assert (await Toolbox(prefix, config={"example": {"prefix": ">>"}}).call("prefix")).value == ">>"
    assert (await Toolbox(prefix, config=Config({"example.prefix": "##"})).call("prefix")).value == "##"


@pytest.mark.row("MA-15")
async def test_the_project_directory_is_injected_by_name_or_mark_as_a_path_or_a_text(tmp_path):
    @tool
    async def where(
        project_dir: Path, also: Annotated[Path, ProjectDir], text: Annotated[str, ProjectDir]
    ) -> list[bool]:
        return [project_dir == tmp_path, also == tmp_path, text == str(tmp_path)]

    assert (await Toolbox(where, project_dir=tmp_path).call("where")).value == [True, True, True]
    assert (await Toolbox(where, project_dir=str(tmp_path)).call("where")).value == [True, True, True]
    assert (await Toolbox(where, config={"project_dir": str(tmp_path)}).call("where")).value == [True, True, True]


async def test_the_project_directory_is_absolute(tmp_path, monkeypatch):
    @tool
    async def where(project_dir: Path) -> str:
        return str(project_dir)

    monkeypatch.chdir(tmp_path)

    result = await Toolbox(where, project_dir="sub").call("where")

    assert result.value == str(tmp_path / "sub")


@pytest.mark.row("CO-25")
async def test_the_call_itself_can_be_injected():
    seen = []

    @tool
    async def see(n: int, call: ToolCall) -> None:
        seen.append(call)

    await Toolbox(see).call(ToolCall("c-1", "see", '{"n": "5"}'))

    assert seen == [ToolCall("c-1", "see", '{"n": "5"}')]


@pytest.mark.parametrize(
    "context",
    [
        ToolContext(deps=Database("here")),
        ToolContext(db=Database("here")),
        ToolContext(deps={"db": Database("here")}),
        ToolContext(deps={Database: Database("here")}),
        ToolContext(deps=Deps(Database("here"))),
        {"db": Database("here")},
        {"deps": Database("here")},
    ],
    ids=["deps itself", "value", "key of deps", "type in deps", "attribute of deps", "mapping", "deps in a mapping"],
)
async def test_a_marked_parameter_is_found_by_type_or_name(context):
    @tool
    async def see(db: Annotated[Database, Inject]) -> str:
        return db.url

    result = await Toolbox(see).call("see", context=context)

    assert result.unwrap() == "here"


@pytest.mark.parametrize(
    "context",
    [ToolContext(tenant="acme"), ToolContext(deps={"tenant": "acme"}), ToolContext(deps=Deps(Database(""), "acme"))],
    ids=["value", "key of deps", "attribute of deps"],
)
async def test_a_marked_parameter_with_a_key_is_found_by_that_key(context):
    @tool
    async def see(who: Annotated[str, Inject("tenant")]) -> str:
        return who

    assert (await Toolbox(see).call("see", context=context)).unwrap() == "acme"


async def test_a_value_of_the_context_wins_over_one_of_deps():
    @tool
    async def see(tenant: Annotated[str, Inject]) -> str:
        return tenant

    context = ToolContext(deps=Deps(Database("")), tenant="from the call")

    assert (await Toolbox(see).call("see", context=context)).value == "from the call"


@pytest.mark.parametrize("value", [None, 0, "", False], ids=repr)
async def test_a_value_that_is_empty_is_still_a_value(value):
    seen = []

    @tool
    async def see(flag: Annotated[object, Inject("flag")]) -> None:
        seen.append(flag)

    result = await Toolbox(see).call("see", context={"flag": value})

    assert result.ok
    assert seen == [value]


# --- what is missing ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["project_dir", "inject", "key"])
async def test_what_is_missing_is_a_clear_error_before_the_tool_runs(kind):
    ran = []

    @tool(name="project_dir")
    async def needs_folder(project_dir: Path) -> None:
        ran.append(1)

    @tool(name="inject")
    async def needs_value(db: Annotated[Database, Inject]) -> None:
        ran.append(1)

    @tool(name="key")
    def needs_key(who: Annotated[str, Inject("tenant")]) -> None:
        ran.append(1)

    words = {"project_dir": "project_dir", "inject": "db", "key": "tenant"}

    result = await Toolbox(needs_folder, needs_value, needs_key).call(kind)

    assert isinstance(result.error, ExecutionError)
    assert isinstance(result.error.__cause__, ConfigError)
    assert words[kind] in result.text
    assert ran == []


async def test_what_is_missing_is_not_tried_again():
    @tool(retry=Retry(attempts=5, delay=60, on=(Exception,)))
    async def needs(db: Annotated[Database, Inject]) -> None: ...

    async with asyncio.timeout(5):
        result = await Toolbox(needs).call("needs")

    assert isinstance(result.error.__cause__, ConfigError)


async def test_a_default_stands_in_for_a_value_that_the_application_did_not_give():
    @tool
    async def see(tenant: Annotated[str, Inject] = "nobody") -> str:
        return tenant

    box = Toolbox(see)

    assert (await box.call("see")).unwrap() == "nobody"
    assert (await box.call("see", context={"tenant": "acme"})).unwrap() == "acme"


async def test_a_default_stands_in_for_a_project_directory_that_is_not_set():
    """seeds.md C11: an error only where there is no default either."""

    @tool
    async def see(project_dir: Path | None = None) -> bool:
        return project_dir is None

    assert (await Toolbox(see).call("see")).unwrap() is True


# --- a model that sends what it must not -------------------------------------------------------


@pytest.mark.row("SP-25")
@pytest.mark.parametrize("extra", ["ignore", "forbid"])
async def test_a_model_that_sends_an_injected_parameter_is_ignored_with_a_warning(caplog, tmp_path, extra):
    @tool(extra=extra)
    async def see(
        n: int, ctx: ToolContext, project_dir: Path, tenant: Annotated[str, Inject], call: ToolCall, config: Config
    ) -> list:
        return [n, ctx.tool_name, project_dir == tmp_path, tenant, call.name, isinstance(config, Config)]

    box = Toolbox(see, project_dir=tmp_path, context={"tenant": "acme"})
    sent = '{"n": 1, "ctx": {}, "project_dir": "/etc", "tenant": "evil", "call": {}, "config": {}}'

    with caplog.at_level(logging.WARNING, logger="toolmason"):
        result = await box.call("see", sent)

    assert result.unwrap() == [1, "see", True, "acme", "see", True]
    assert "project_dir" in caplog.text
    assert "tenant" in caplog.text


async def test_a_model_cannot_send_an_injected_parameter_through_a_mapping(tmp_path):
    @tool
    async def see(project_dir: Path) -> bool:
        return project_dir == tmp_path

    result = await Toolbox(see, project_dir=tmp_path).call("see", {"project_dir": Path("/etc")})

    assert result.value is True


async def test_a_model_cannot_send_an_injected_parameter_where_extra_arguments_are_allowed(caplog, tmp_path):
    @tool(extra="allow")
    async def see(project_dir: Path, **more: object) -> list:
        return [project_dir == tmp_path, more]

    with caplog.at_level(logging.WARNING, logger="toolmason"):
        result = await Toolbox(see, project_dir=tmp_path).call("see", '{"project_dir": "/etc", "a": 1}')

    assert result.value == [True, {"a": 1}]
    assert "project_dir" in caplog.text


async def test_a_prompt_gets_injected_values_too(tmp_path):
    @prompt
    def about(topic: str, project_dir: Path, tenant: Annotated[str, Inject]) -> str:
        return f"{topic} {tenant} {project_dir == tmp_path}"

    [message] = await Toolbox(about, project_dir=tmp_path).prompt("about", {"topic": "x"}, context={"tenant": "acme"})

    assert message.text == "x acme True"


def test_a_value_may_have_any_name():
    context = ToolContext().merge({"self": 1, "origin": 2})

    assert dict(pickle.loads(pickle.dumps(context))) == {"self": 1, "origin": 2}


@pytest.mark.parametrize("value", [42, None], ids=["number", "none"])
async def test_a_default_does_not_hide_a_value_of_a_wrong_type(value):
    def read(tenant: Annotated[str, Inject("tenant")] = "public") -> str:
        return tenant

    box = Toolbox(read)

    wrong = await box.call("read", context={"tenant": value})
    absent = await box.call("read")

    assert isinstance(wrong.error.__cause__, ConfigError)
    assert "'tenant' is injected as str, but its value is" in wrong.text
    assert absent.value == "public"


@pytest.mark.parametrize("hint", [str | None, str], ids=["type", "default"])
async def test_none_is_injected_where_the_type_or_the_default_admits_it(hint):
    def read(tenant=None):
        return repr(tenant)

    read.__annotations__ = {"tenant": Annotated[hint, Inject("tenant")], "return": str}

    assert (await Toolbox(read).call("read", context={"tenant": None})).value == "None"


async def test_none_is_no_text():
    def read(tenant: Annotated[str, Inject("tenant")]) -> str:
        return tenant

    result = await Toolbox(read).call("read", context={"tenant": None})

    assert "'tenant' is injected as str, but its value is NoneType" in result.text


def ignore(n: int, tenant: Annotated[str, Inject("tenant")]) -> str:
    return tenant


def ignore_among_keywords(n: int, tenant: Annotated[str, Inject("tenant")], **rest: str) -> str:
    return tenant


@pytest.mark.parametrize("as_text", [False, True], ids=["mapping", "text"])
@pytest.mark.parametrize("n", [1, "5", "five"], ids=["valid", "repaired", "invalid"])
@pytest.mark.parametrize("fn", [ignore, ignore_among_keywords], ids=["plain", "keywords"])
async def test_an_argument_that_the_application_sets_is_logged_once(caplog, fn, n, *, as_text):
    arguments = {"n": n, "tenant": "other"}
    box = Toolbox(fn, context={"tenant": "mine"})

    with caplog.at_level(logging.WARNING, logger="toolmason"):
        result = await box.call(fn.__name__, json.dumps(arguments) if as_text else arguments)

    assert result.value == (None if n == "five" else "mine")
    assert [text for text in caplog.messages if "the application sets" in text] == [caplog.messages[0]]
