"""A recorder has the spans of its block, of one run or of all, and asks for what it needs."""

import asyncio
import sys

import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once

from toolmason import Chat, Toolbox, tool
from toolmason.errors import ConfigError
from toolmason.observe import record
from toolmason.observe import recorder as recorder_module
from toolmason.testing import ScriptedModel


@tool
async def double(number: int) -> int:
    """Double a number."""
    return number * 2


@pytest.fixture
def no_provider(monkeypatch):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())


async def test_a_recorder_sets_a_provider_if_the_program_has_none(no_provider):
    box = Toolbox(double)

    with record() as recorder:
        await box.call("double", {"number": 1})
    await box.call("double", {"number": 2})
    with record() as second:
        await box.call("double", {"number": 3})

    assert [span.name for span in recorder.spans] == [span.name for span in second.spans] == ["execute_tool double"]


async def test_a_recorder_uses_the_provider_of_the_program_and_adds_one_processor(spans, monkeypatch):
    provider, added = trace.get_tracer_provider(), []
    add = provider.add_span_processor
    monkeypatch.setattr(provider, "add_span_processor", lambda processor: added.append(add(processor)))

    for _ in range(3):
        with record() as outer, record() as inner:
            await Toolbox(double).call("double", {"number": 1})
        assert len(outer.spans) == len(inner.spans) == 1

    assert (len(spans), len(added)) == (3, 1)


async def test_the_spans_of_one_run_are_selected_by_its_reply(spans):
    chats = [Chat(ScriptedModel([[("double", {"number": 1})], "2"]), [double]) for _ in range(2)]

    with record() as recorder:
        first, second = await asyncio.gather(*[chat.send("1 + 1?") for chat in chats])

    assert len(recorder.spans) == 8
    assert len(recorder.select(first)) == len(recorder.select(second.trace)) == 4
    assert recorder.select("") == []
    failed = [span for span in recorder.spans if span.failed]
    assert failed == []


async def test_a_recorder_is_bounded(spans, monkeypatch):
    monkeypatch.setattr(recorder_module, "MAX_RECORDED", 2)

    with record() as recorder:
        await Toolbox(double).call_all([("double", {"number": 1})] * 5)

    assert len(recorder.spans) == 2


def test_a_provider_that_takes_no_processors_is_refused(monkeypatch):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", trace.NoOpTracerProvider())

    with pytest.raises(ConfigError, match="NoOpTracerProvider takes no processors"), record():
        pass


def test_without_the_sdk_the_command_to_install_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with pytest.raises(ImportError, match=r"pip install 'toolmason\[otel\]'"), record():
        pass
