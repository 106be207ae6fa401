"""A server process that misbehaves costs what it must, and no more. Rows F01 to F44 of the fault table, by name."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

from toolmason import McpServer, Toolbox
from toolmason._text import escape_hidden

RAW = str(Path(__file__).parents[1] / "adversaries" / "raw_stdio.py")


def raw(case: str, *more: str, name: str = "raw", **words):
    return McpServer.stdio(name, sys.executable, [RAW, case, *more], **words)


async def echoed(box: Toolbox, **words):
    return await box.call("echo", {"text": "hello"}, **words)


@pytest.mark.parametrize(
    "case", ["plain", "oldest", "banner", "bad byte banner", "garbage", "bad byte", "silent on probe", "exits on probe"]
)
async def test_f05_f06_a_server_of_the_old_era_is_spoken_to_whatever_else_it_prints(case):
    async with Toolbox(raw(case)) as box:
        result = await echoed(box)

    assert result.text == "hello"


async def test_a_server_that_does_not_know_the_ping_is_alive(tmp_path):
    log = tmp_path / "log"
    async with Toolbox(raw("no ping", env={"RAW_LOG": str(log)})) as box:
        health = (await box.health())["raw"]
        result = await echoed(box)

    assert (health.ok, health.tools, result.text) == (True, 1, "hello")
    assert log.read_text().count("started") == 1


async def test_what_was_learnt_of_a_fragile_server_is_kept(tmp_path):
    log = tmp_path / "log"
    server = raw("exits on probe", str(tmp_path), env={"RAW_LOG": str(log)})

    for _ in range(2):
        async with Toolbox(server) as box:
            await echoed(box)

    assert log.read_text().count("server/discover") == 1


async def test_f01_a_process_that_is_killed_in_a_call_fails_that_call_and_is_started_again(tmp_path):
    async with Toolbox(raw("dies in the first call", str(tmp_path / "mark"))) as box:
        first = await echoed(box)
        second = await echoed(box)

    assert first.error.code == "remote_error"
    assert first.error.server == "raw"
    assert first.error.phase == "call"
    assert first.error.stderr == "about to die"
    assert "about to die" not in first.text
    assert second.text == "hello"


async def test_f02_f03_a_server_that_never_answers_costs_its_time_out_and_can_be_used_again(tmp_path):
    log = tmp_path / "log"
    async with Toolbox(raw("never answers", timeout=0.2, env={"RAW_LOG": str(log)})) as box:
        result = await echoed(box)
        listed = await box.list()

    assert result.error.code == "timeout"
    assert "notifications/cancelled" in log.read_text()
    assert [tool.name for tool in listed] == ["echo"]


@pytest.mark.usefixtures("short_termination")
async def test_f04_a_server_that_never_starts_costs_its_connect_timeout_and_is_dead_afterwards(tmp_path):
    log = tmp_path / "log"
    box = Toolbox(raw("never starts", connect_timeout=1.0, required=True, env={"RAW_LOG": str(log)}))

    with pytest.raises(Exception, match=r"Server 'raw', connect: no response within connect_timeout=1 s") as caught:
        async with asyncio.timeout(10), box:
            pass

    assert caught.value.phase == "connect"
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text().split()[-1]), 0)


async def test_a_server_that_dies_at_once_says_its_last_words():
    box = Toolbox(raw("dies at once", required=True))

    with pytest.raises(Exception, match="Last stderr line: no configuration found"):
        async with box:
            pass


async def test_a_command_that_is_not_there_is_named():
    box = Toolbox(McpServer.stdio("none", "/no/such/program", required=True))

    with pytest.raises(Exception, match="cannot start '/no/such/program'"):
        async with box:
            pass


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("bad byte in the answer", "not valid JSON"),
        ("deep answer", "nested deeper than 128 levels"),
        ("half a surrogate", "not valid JSON"),
        ("neither", "neither a result nor an error"),
    ],
)
async def test_f05_f16_f17_an_answer_that_cannot_be_read_fails_its_call_at_once(case, reason):
    async with Toolbox(raw(case, timeout=30)) as box:
        result = await echoed(box)
        listed = await box.health()

    assert reason in result.error.reason
    assert listed["raw"].ok


async def test_f07_a_large_answer_arrives_whole():
    size = 8 * 1024 * 1024
    async with Toolbox(raw("large answer", str(size))) as box:
        result = await echoed(box)

    assert len(result.value) == size


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("order", [("large", "small"), ("small", "large")], ids=" ".join)
async def test_d19_an_oversized_answer_fails_its_own_call_alone(place, order, tmp_path):
    log = tmp_path / "log"
    async with Toolbox(raw("oversized answer", place, timeout=60, env={"RAW_LOG": str(log)})) as box:
        results = await asyncio.gather(*(box.call("echo", {"text": text}) for text in order))
        again = await asyncio.gather(*(box.call("echo", {"text": "small"}) for _ in range(2)))

    found = dict(zip(order, results, strict=True))
    assert "it is longer than the limit of 16777216 bytes" in found["large"].text
    assert [result.text for result in (found["small"], *again)] == ["small"] * 3
    assert log.read_text().count("started") == 1


@pytest.mark.parametrize("version", ["1999-01-01", "2999-12-31", "", "latest", "\x1b[31m", "x" * 1000], ids=repr)
@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_d22_a_version_of_the_protocol_that_is_unknown_is_told_as_such(version, era):
    async with Toolbox(raw("unknown version", version, era=era)) as box:
        error = (await box.health())["raw"].error

    assert error.startswith("unsupported protocol version")
    assert f"'{escape_hidden(version[:50])}" in error
    assert "\x1b" not in error


async def test_f08_a_line_without_an_end_is_cut_off_at_the_cap():
    async with Toolbox(raw("endless line", timeout=60)) as box:
        result = await echoed(box)

    assert result.error.code == "remote_error"


@pytest.mark.usefixtures("short_termination")
@pytest.mark.parametrize("case", ["stubborn", "grandchild"])
async def test_f11_f12_nothing_that_a_server_started_survives_it(case, tmp_path):
    log = tmp_path / "log"
    async with Toolbox(raw(case, env={"RAW_LOG": str(log)})) as box:
        await echoed(box)

    pids = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith(("started", "grandchild"))]
    assert pids
    assert [pid for pid in pids if _runs(pid)] == []


@pytest.mark.usefixtures("short_termination")
async def test_a_process_that_failed_the_probe_is_stopped_with_the_toolbox(tmp_path):
    log = tmp_path / "log"
    log.touch()
    box = Toolbox(raw("closes its output on probe", env={"RAW_LOG": str(log)}))
    call = asyncio.create_task(echoed(box))
    while "closed" not in (lines := log.read_text().splitlines()):  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.01)

    await box.__aexit__(None, None, None)

    assert not (await call).ok
    assert not _runs(int(lines[0].split()[1]))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("endless pages", "the tools list has more than 100 pages"),
        ("circular pages", "the tools list repeats a page cursor"),
        ("tool flood", "more than 2000"),
    ],
)
async def test_f13_t19_pages_that_never_end_are_left(case, reason):
    box = Toolbox(raw(case, required=True))

    with pytest.raises(Exception, match=reason):
        async with box:
            pass


async def test_two_pages_are_read():
    async with Toolbox(raw("two pages")) as box:
        assert [tool.name for tool in box.tools] == ["echo", "second"]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("bad definition", "ignoring tool 'broken': it has no input schema"),
        ("same name twice", "2 tools are named 'twin'; ignoring all of them"),
        ("hidden characters", "ignoring tool 'poison': its description contains the hidden character U+200B"),
        ("deep schema", "ignoring tool 'abyss': its input schema is nested deeper than 32 levels"),
        ("remote ref", "ignoring tool 'far': its output schema references 'http://127.0.0.1:9/x.json'"),
    ],
)
async def test_f14_f15_f19_f46_one_bad_definition_does_not_cost_the_others(case, said, caplog):
    with caplog.at_level(logging.WARNING):
        async with Toolbox(raw(case)) as box:
            names = [tool.name for tool in box.tools]
            result = await echoed(box)

    assert names == ["echo"]
    assert result.text == "hello"
    assert said in caplog.text


async def test_a_missing_description_is_no_fault():
    async with Toolbox(raw("no description")) as box:
        assert box["echo"].description == "Echo"


async def test_f18_a_schema_that_would_take_for_ever_is_not_used_for_checking():
    async with Toolbox(raw("redos")) as box:
        result = await box.call("echo", {})

    assert result.structured == {"a": "a" * 40 + "b"}


async def test_f40_t20_a_flood_of_progress_does_not_keep_the_result(caplog):
    seen = []
    async with Toolbox(raw("progress flood", "200000")) as box:
        result = await echoed(box, on_progress=seen.append, timeout=30)

    assert result.text == "hello"
    assert seen[-1].done == 199_999
    assert len(seen) < 20_000
    assert "progress notifications were dropped" in caplog.text


async def test_progress_that_is_no_flood_is_complete_and_in_order():
    seen = []
    async with Toolbox(raw("progress flood", "200")) as box:
        await echoed(box, on_progress=seen.append, timeout=30)

    assert [report.done for report in seen] == list(range(200))


@pytest.mark.usefixtures("short_termination")
@pytest.mark.parametrize("case", ["never starts", "dies at once", "bad definition", "endless pages", "tool flood"])
async def test_f41_one_bad_server_of_three_does_not_hold_up_the_others(case, caplog):
    servers = [
        raw("plain", name="one"),
        raw(case, name="two", connect_timeout=0.5 if case == "never starts" else 20),
        raw("two pages", name="three"),
    ]
    with caplog.at_level(logging.WARNING):
        async with Toolbox(*servers) as box:
            names = [tool.name for tool in box.tools if not tool.name.startswith("two")]
            result = await box.call("second", {"text": "hello"})

    assert names == ["echo", "second", "three__echo"]
    assert result.text == "hello"
    assert ("broken" if case == "bad definition" else "server 'two'") in caplog.text


async def test_f44_t10_the_process_gets_a_short_list_of_our_environment(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("A_SECRET_OF_OURS", "1")

    async with Toolbox(raw("plain", env={"RAW_LOG": str(log)})) as box:
        await echoed(box)

    seen = next(line for line in log.read_text().splitlines() if line.startswith("environment"))
    assert "A_SECRET_OF_OURS" not in seen
    assert "RAW_LOG" in seen
    assert "PATH" in seen


async def test_what_a_tool_says_with_is_error_is_an_error_in_its_own_words():
    async with Toolbox(raw("says no")) as box:
        result = await echoed(box)

    assert not result.ok
    assert result.error.message == "it did not work"


async def test_cancelled_calls_leave_nothing_behind(tmp_path):
    log = tmp_path / "log"
    async with Toolbox(raw("never answers", env={"RAW_LOG": str(log)})) as box:
        calls = [asyncio.create_task(echoed(box)) for _ in range(50)]
        await asyncio.sleep(0.2)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert (await box.health())["raw"].ok
        link = box._state.remotes.sources[0].pool.sessions[""]  # noqa: SLF001 - what must be empty is inside
        assert link.sanitizer.pending == {}

    assert log.read_text().count("notifications/cancelled") == 50
