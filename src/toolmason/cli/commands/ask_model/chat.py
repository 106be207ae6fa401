"""`toolmason chat TARGET ["prompt"]`: chat with a model that calls the tools of a target."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from typing_extensions import Unpack

from toolmason._core.call.approval import Allow, Decision
from toolmason._core.run.progress import OnProgress, ProgressReport
from toolmason._core.toolbox.exchange import TextDelta
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolResult
from toolmason._secrets import write_private
from toolmason._text import pluralize
from toolmason.chat.chat import Chat
from toolmason.chat.events import CallFinished, CallProgress, CallStarted, Done
from toolmason.chat.memory import SqliteMemory, WindowMemory
from toolmason.chat.reply import Reply
from toolmason.chat.send_options import MessageInput, SendKeywords
from toolmason.cli.approval import ask_approval, mask_secrets
from toolmason.cli.main import TOOL_ERROR, USAGE, combine_options, examples
from toolmason.cli.main_thread import ask_main_thread, on_interrupt, run_beside
from toolmason.cli.output import echo, is_terminal, print_error, print_json, print_text, progress_bar
from toolmason.cli.targets import fail, load_toolbox, parse_json_or_text
from toolmason.errors import ApprovalRequired, ConfigError, ToolmasonError
from toolmason.models.by_name import LOCAL_INSTALL, model
from toolmason.observe.recorder import TraceRecorder, record
from toolmason.observe.span_record import SpanRecord
from toolmason.observe.tree import format_tree
from toolmason.observe.waterfall import to_html

MODEL_BY_VARIABLE: Final = {
    "OPENAI_API_KEY": "openai:gpt-5",
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5",
    "GEMINI_API_KEY": "gemini:gemini-2.5-flash",
    "GOOGLE_API_KEY": "gemini:gemini-2.5-flash",
    "OPENAI_BASE_URL": "openai-chat:default",
}
"""Default model for each environment variable; the first variable that is set wins."""
HELP_TEXT: Final = "/tools lists the tools, /reset starts again, /save or /load FILE, /quit exits."
CANCELLED_TEXT: Final = "Cancelled. Send another message, or /quit."
_RECORDER: Final[ContextVar[TraceRecorder | None]] = ContextVar("toolmason_trace", default=None)
"""Recorder whose spans are printed after each answer."""


model_options = combine_options(
    click.argument("target", required=False),
    click.option("--model", "name", help="Model: openai:gpt-5, openai-chat:…, anthropic:…, local, offline."),
    click.option("--base-url", metavar="URL", help="Address of the model's API."),
    click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="HTTP header; repeatable."),
    click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="Option of the model; repeatable."),
    click.option("--reasoning", metavar="LEVEL", help="low, medium, high, or a number of tokens."),
    click.option("--system", help="System prompt."),
)
"""Target and options of a command that has a chat."""
prompt_options = combine_options(
    model_options,
    click.argument("prompt", required=False),
    click.option("--yes", is_flag=True, help="Approve calls without asking."),
    click.option("--json", "as_json", is_flag=True, help="Print the whole reply as JSON."),
    click.option("--trace", is_flag=True, help="Print the spans of each run as a tree."),
    click.option("--trace-file", metavar="FILE", help="Write the spans of all runs as one HTML page."),
)
"""Arguments and options of a command that sends a prompt."""


@click.command(
    "chat",
    epilog=examples(
        "chat app.py",
        "chat app.py 'What is the weather in Prague?' --model openai:gpt-5",
        "chat mcp.json --model local",
    ),
)
@prompt_options
@click.option("--code", is_flag=True, help="Let the model write programs that call the tools, in a sandbox.")
@click.option("--memory", "memory_file", metavar="FILE", help="Keep conversations in this SQLite file.")
@click.option("--conversation", metavar="NAME", help="Conversation in the file of --memory; by default: default.")
def command(target: str | None, prompt: str | None, *, yes: bool, as_json: bool, **options: Any) -> None:
    """Chat with a model that calls the tools of TARGET; with PROMPT, or text on standard input, answer once."""
    if options["conversation"] is not None and options["memory_file"] is None:
        raise click.UsageError("--conversation names a conversation in a file. Add --memory FILE.")
    box = load_toolbox(target)
    file = options["memory_file"]
    memory = WindowMemory(100) if file is None else SqliteMemory(file, 100)
    chat = make_chat(box, options, memory=memory, code=options["code"])
    conversation = None if file is None else options["conversation"] or "default"
    if prompt is None and not sys.stdin.isatty():
        prompt = sys.stdin.read().strip()
    with tracing(options):
        if prompt:
            quiet = as_json or not is_terminal()
            reply = run_beside(send_and_show(chat, prompt, yes=yes, quiet=quiet, conversation=conversation))
            print_reply(reply, as_json=as_json)
            return
        run_beside(_run_conversation(chat, memory, conversation, yes=yes))


def make_chat(box: Toolbox, options: Mapping[str, Any], **keywords: Any) -> Chat:
    """Return the chat of the options that `model_options` adds. A name of the model is chosen if none is given."""
    name = options["name"] or choose_and_announce_model()
    given = read_model_options(options)
    try:
        made = model(name, base_url=options["base_url"], headers=read_pairs("--header", options["headers"]) or None)
        return Chat(made, box, system=options["system"], options=given or None, **keywords)
    except ImportError as missing:
        raise click.ClickException(str(missing)) from missing


def read_model_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the model: values are JSON, or else text."""
    given = read_pairs("--option", options["options"])
    if options["reasoning"] is not None:
        given["reasoning"] = options["reasoning"]
    return {name: parse_json_or_text(value) for name, value in given.items()}


def read_pairs(option: str, pairs: Iterable[str]) -> dict[str, str]:
    """Return the pairs of an option that can be repeated."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {pair.partition('=')[0]!r}: write NAME=VALUE.")
        found[name] = value
    return found


@contextmanager
def tracing(options: dict[str, Any]) -> Generator[None]:
    """Record the spans of a command as `--trace` and `--trace-file` say."""
    path = options["trace_file"]
    if not options["trace"] and path is None:
        yield
        return
    with ExitStack() as stack:
        try:
            recorder = stack.enter_context(record())
        except ImportError as missing:
            raise click.ClickException(str(missing)) from missing
        _RECORDER.set(recorder if options["trace"] else None)
        try:
            yield
        finally:
            if path is not None:
                write_page(path, recorder.spans, "toolmason")


def write_page(path: str, spans: Iterable[SpanRecord], title: str) -> None:
    """Write spans as a page that only its owner can read."""
    try:
        write_private(path, to_html(spans, title).encode())
    except OSError as error:
        fail(f"Cannot write {path!r}: {error.strerror}. Name another file.", USAGE)
    echo(f"Wrote {path}.", err=True)


def choose_and_announce_model() -> str:
    """Return the default model, and print why it was chosen."""
    name, notice = choose_model()
    echo(notice, err=True)
    return name


def choose_model() -> tuple[str, str]:
    """Return the default model and a notice that names it."""
    for key, name in MODEL_BY_VARIABLE.items():
        if os.environ.get(key):
            return name, f"Using {name}, because {key} is set. Choose another with --model."
    with suppress(ConfigError, ImportError):
        model("local")  # this loads no weights
        return "local", (
            "Using the local model, because no API key is set: very small, on this machine, and often wrong. "
            "Choose another with --model."
        )
    return "offline", (
        "Using the offline stand-in, which only matches keywords: no API key is set. Choose a model with --model, "
        f"or install the local one: {LOCAL_INSTALL}"
    )


def print_reply(reply: Reply, *, as_json: bool) -> None:
    """Print the reply of a run; exit with a failure if it waits for approval, or has no complete answer."""
    if as_json:
        print_json(reply.to_dict())
    elif not is_terminal():
        print_text(reply.text)
    if reply.pending:
        fail("The run is waiting for approval. Run it in a terminal, or with --yes.", TOOL_ERROR)
    if reply.problem:
        fail(reply.problem, TOOL_ERROR)


async def _run_conversation(
    chat: Chat, memory: WindowMemory | SqliteMemory, conversation: str | None, *, yes: bool
) -> None:
    echo(HELP_TEXT, err=True)
    while True:
        text = (await ask_main_thread(_read_message)).strip()
        if text in ("/quit", "/exit"):
            return
        if text.startswith("/"):
            await _run_command(text, chat, memory, conversation)
        elif text:
            await _answer(text, chat, conversation, yes=yes)


def _read_message() -> str:
    """Return the next message; the end of the input is the command to exit."""
    try:
        return input("> ")
    except EOFError:
        echo()
        return "/quit"
    except KeyboardInterrupt:
        echo()
        raise


async def _run_command(text: str, chat: Chat, memory: WindowMemory | SqliteMemory, conversation: str | None) -> None:
    name, _, path = text.partition(" ")
    if name == "/tools":
        for tool in chat.box.tools:
            echo(f"{tool.name}  {tool.description}")
    elif name == "/reset":
        memory.forget(conversation or "")
    elif name == "/save":
        await _save(chat, conversation, path.strip() or "conversation.json")
    elif name == "/load":
        await _load(memory, conversation, path.strip() or "conversation.json")
    else:
        echo(HELP_TEXT)


async def _answer(text: str, chat: Chat, conversation: str | None, *, yes: bool) -> None:
    try:
        with on_interrupt(partial(chat.cancel, conversation)):
            reply = await send_and_show(chat, text, yes=yes, quiet=False, conversation=conversation)
    except ToolmasonError as error:
        print_error(str(error))
        return
    except click.Abort:
        echo(f"\n{CANCELLED_TEXT}", err=True)
        return
    except Exception as error:
        logging.getLogger("toolmason").debug("the answer failed", exc_info=True)
        print_error(f"The model failed: {type(error).__name__}: {error}")
        return
    if reply.finish == "cancelled":
        echo(CANCELLED_TEXT, err=True)
    elif reply.problem:
        print_error(reply.problem)


async def _load(memory: WindowMemory | SqliteMemory, conversation: str | None, path: str) -> None:
    """Replace the conversation by one that /save wrote."""
    try:
        data = json.loads(await asyncio.to_thread(Path(path).read_text, "utf-8"))
        messages = [Message.from_dict(item) for item in data]
    except OSError as error:
        print_error(f"Cannot read {path!r}: {error.strerror}. Name another file.")
    except (ValueError, KeyError, TypeError, ToolmasonError):
        print_error(f"{path!r} is not a conversation that /save wrote. Name another file.")
    else:
        memory.forget(conversation or "")
        await memory.append(conversation or "", messages)
        echo(f"Loaded {pluralize(len(messages), 'message')} from {path}.", err=True)


async def _save(chat: Chat, conversation: str | None, path: str) -> None:
    messages = [message.to_dict() for message in await chat.load_history(conversation)]
    try:
        write_private(path, json.dumps(messages, indent=1, ensure_ascii=False).encode())
    except OSError as error:
        print_error(f"Cannot write {path!r}: {error.strerror}. Name another file.")
    else:
        echo(f"Saved {pluralize(len(messages), 'message')} to {path}.", err=True)


async def _stream(chat: Chat, message: MessageInput, *, quiet: bool, **options: Unpack[SendKeywords]) -> Reply:
    """Send a message, print events, and return the reply."""
    reply: Reply | None = None
    with ExitStack() as bar:
        draw: OnProgress | None = None
        async for event in chat.stream(message, **options):
            if isinstance(event, Done):
                reply = event.reply
            elif not quiet and isinstance(event, CallProgress):
                draw = draw or bar.enter_context(progress_bar()) or _ignore
                draw(event.progress)
            elif not quiet:
                bar.close()  # a line cannot be printed into the bar
                draw = None
                _show(chat.box, event)
    assert reply is not None  # noqa: S101 - the last event of every stream
    return reply


def _ignore(report: ProgressReport) -> None:
    """Draw nothing: standard error is not a terminal."""


async def send_and_show(
    chat: Chat, message: MessageInput, *, yes: bool, quiet: bool, **options: Unpack[SendKeywords]
) -> Reply:
    """Send a message, print events, ask for pending approvals, print the spans, and return the reply."""
    recorder = _RECORDER.get()
    earlier = 0 if recorder is None else len(recorder.spans)
    reply = await _send(chat, message, yes=yes, quiet=quiet, **options)
    if recorder is not None:
        echo(format_tree(recorder.spans[earlier:], shutil.get_terminal_size((120, 24)).columns), err=True)
    return reply


async def _send(chat: Chat, message: MessageInput, *, yes: bool, quiet: bool, **options: Unpack[SendKeywords]) -> Reply:
    reply = await _stream(chat, message, quiet=quiet, **options)
    while reply.pending:
        decisions = await _make_decisions(chat, reply, yes=yes)
        if not decisions:
            break
        approved_ids = {request.call_id for request in reply.pending}
        reply = await chat.resume(reply, decisions)
        if not quiet:
            for result in reply.results:
                if result.call_id in approved_ids:
                    _show_result(result)
            echo(reply.text)
    if not quiet:
        echo()
    return reply


def _show(box: Toolbox, event: Any) -> None:
    if isinstance(event, TextDelta):
        echo(event.text, nl=False)
    elif isinstance(event, CallStarted):
        shown, _ = mask_secrets(box, event.call.name, event.call.arguments or event.call.raw, None)
        arguments = json.dumps(shown, ensure_ascii=False, default=str)
        echo(f"→ {event.call.name} {arguments}", fg="cyan", err=True)
    elif isinstance(event, CallFinished):
        _show_result(event.result)


def _show_result(result: ToolResult) -> None:
    if isinstance(result.error, ApprovalRequired):
        echo(f"? {result.name} is waiting for approval", fg="yellow", err=True)
        return
    mark, color, text = ("✓", "green", result.text) if result.error is None else ("✗", "red", str(result.error))
    # The result of a call that was cancelled has no duration.
    seconds = f"  ({result.duration * 1000:.0f} ms)" if result.duration else ""
    echo(f"{mark} {text[:200]}{seconds}", fg=color, err=True)


async def _make_decisions(chat: Chat, reply: Reply, *, yes: bool) -> list[Decision]:
    decisions: list[Decision] = []
    for request in reply.pending:
        verdict = Allow() if yes else await ask_main_thread(ask_approval, chat.box, request)
        if verdict is None:
            return []
        decisions.append(chat.box.approvals.decide(request, verdict))
    return decisions
