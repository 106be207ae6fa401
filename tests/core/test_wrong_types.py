"""Wrong types for a public function raise an error of ours that names the parameter."""

import contextlib
import importlib
import inspect
import os
import types

import pytest

from toolmason import Chat, Limits, McpServer, Retry, Tool, Toolbox, tool
from toolmason.errors import ToolmasonError, UnknownName
from toolmason.models import ModelReply, ScriptedModel

MODULES = ("toolmason", "toolmason.chat", "toolmason.testing", "toolmason.mcp", "toolmason.extend", "toolmason.models")
WRONG = [
    *(None, 5, -1, 1.5, float("nan"), True, "x", b"x", object(), lambda: 1),
    *([1], [None], [{}], (1, 2), {"a": 1}, {1: 2}, {"role": "user", "content": 5}, {"mcpServers": 7}),
]
NOT_CALLED = {
    "serve": "runs until it is interrupted",
    "asgi_app": "needs the extra of the server",
    "Image": "a tool makes it, and its TypeError and ValueError name the data",
    "Audio": "the same",
    "EmbeddedResource.from_file": "reads a file, and the error of the file system names it",
}
VALID = {
    "Rate": (5,),
    "SqliteMemory": ("memory.db",),
    "SqliteRuntime": ("runs.db",),
    "Recording": ("run.json",),
    "Message": ("user", "hi"),
    "ToolCall": ("1", "name", {}),
    "ToolDefinition": ("name", "Description.", {"type": "object"}),
    "Text": ("x",),
    "EmbeddedResource": ("u:x", "t"),
    "ResourceLink": ("u:x", "n"),
    "RemoteMcp": ("n", "https://x.example"),
    "Edit": ({},),
    "ToolReturn": ("x",),
    "Chat": (ScriptedModel(["x"]),),
    "model": ("offline",),
    "scan": ("json",),
    "supported_for": ("openai",),
    "tools_from": (os,),
    "token_is": ("a-long-secret-of-32-characters-xx",),
}


def callables():
    found = {}
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            item = getattr(module, name)
            is_class = inspect.isclass(item)
            if name in NOT_CALLED or not callable(item) or (is_class and issubclass(item, BaseException)):
                continue
            if not getattr(item, "_is_protocol", False) and isinstance(item, type | types.FunctionType | type(tool)):
                found[name] = item
            for member, value in vars(item).items() if is_class else ():
                is_maker = not member.startswith("_") and isinstance(value, classmethod | staticmethod)
                if is_maker and f"{name}.{member}" not in NOT_CALLED:
                    found[f"{name}.{member}"] = getattr(item, member)
    return found


CALLABLES = callables()


def calls_of(name, function):
    """Yield a parameter, and arguments of which that one has a wrong type."""
    valid = VALID.get(name, ())
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        for wrong in WRONG if parameter.kind is not parameter.VAR_KEYWORD else ():
            if parameter.kind is parameter.VAR_POSITIONAL:
                yield parameter, (*valid, wrong), {}
            elif parameter.kind is parameter.KEYWORD_ONLY or place > len(valid):
                yield parameter, valid, {parameter.name: wrong}
            else:
                yield parameter, (*valid[:place], wrong, *valid[place + 1 :]), {}


@pytest.mark.parametrize("name", CALLABLES)
@pytest.mark.filterwarnings("ignore")
def test_a_wrong_type_is_an_error_of_ours(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, others = CALLABLES[name], []
    for parameter, args, keywords in calls_of(name, function):
        try:
            inspect.signature(function).bind(*args, **keywords)
        except TypeError:
            continue  # Python itself names what is missing
        try:
            made = function(*args, **keywords)
            if inspect.iscoroutine(made):
                made.close()
        except ToolmasonError as error:
            if not str(error):
                others.append((parameter.name, "no text"))
        except Exception as error:  # noqa: BLE001 - the point of the test
            others.append((parameter.name, repr(error)))

    assert others == []


@tool
async def hi(x: int = 1) -> int:
    """Return a number."""
    return x


BOX = Toolbox(hi)
OBJECTS = {
    "Toolbox": BOX,
    "Toolbox.approvals": BOX.approvals,
    "Toolbox.servers": BOX.servers,
    "Chat": Chat(ScriptedModel(["x"] * 10_000), BOX),
    "Tool": BOX["hi"],
}
FIRST = {"Toolbox.call": ("hi",), "Toolbox.renamed": ({},)}
METHODS = [
    f"{name}.{member}"
    for name, item in OBJECTS.items()
    for member in dir(item)
    # The sync twin of a method is that method, in another thread.
    if not member.startswith("_") and not member.endswith("_sync") and inspect.ismethod(getattr(item, member))
]


async def consume(made):
    """Wait for what a method returned."""
    if inspect.isasyncgen(made):
        async for _ in made:
            pass
    elif inspect.isawaitable(made):
        await made


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore")
async def test_a_wrong_type_for_a_method_is_an_error_of_ours(name):
    place, _, member = name.rpartition(".")
    function, others = getattr(OBJECTS[place], member), []
    valid = FIRST.get(name, ())
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        for wrong in WRONG if parameter.kind is not parameter.VAR_KEYWORD else ():
            args, keywords = (*valid[:number], wrong, *valid[number + 1 :]), {}
            if parameter.kind is parameter.KEYWORD_ONLY or number > len(valid):
                args, keywords = valid, {parameter.name: wrong}
            with contextlib.suppress(TypeError):  # Python itself names what is missing
                inspect.signature(function).bind(*args, **keywords)
                try:
                    await consume(function(*args, **keywords))
                except ToolmasonError as error:
                    others += [] if str(error) else [(parameter.name, "no text")]
                except Exception as error:  # noqa: BLE001 - the point of the test
                    others.append((parameter.name, wrong, repr(error)))

    assert others == []


def test_a_name_that_does_not_exist_is_an_error_of_ours_and_of_python():
    with pytest.raises(UnknownName, match=r"^No tool") as caught:
        BOX["nothing"]

    assert isinstance(caught.value, KeyError)


@pytest.mark.parametrize(
    ("name", "args", "keywords", "parameter"),
    [
        ("Rate", ("x",), {}, "calls"),
        ("Rate", (5,), {"per": []}, "per"),
        ("WindowMemory", ([],), {}, "messages"),
        ("WindowMemory", (), {"tokens": "x"}, "tokens"),
        ("Retry", (object(),), {}, "attempts"),
        ("Message.from_dict", (5,), {}, "data"),
        ("Message.from_dict", ({"content": "x"},), {}, "data"),
        ("Reply.load", (5,), {}, "saved"),
        ("McpServer.from_config", (5,), {}, "config"),
        ("Toolbox", (), {"max_concurrency": []}, "max_concurrency"),
        ("ToolOptions", (), {"max_calls": "x"}, "max_calls"),
        ("Config.load", (5,), {}, "paths"),
        ("Recording", (None,), {}, "path"),
        ("Search", (), {"budget": "x"}, "budget"),
    ],
)
def test_the_error_names_the_parameter(name, args, keywords, parameter):
    with pytest.raises(ToolmasonError, match=rf"\b{parameter}="):
        CALLABLES[name](*args, **keywords)


def make_plain(**options):
    def plain(a: int) -> int:
        """Return a number."""
        return a

    return Tool.from_function(plain, **options)


FUNCTION = lambda first, second=None: 1  # noqa: E731 - a value of a table
OPTIONS = {
    # How to make it, and the values that each option takes. Every other value of WRONG is refused.
    "a tool": (
        make_plain,
        dict.fromkeys(("read_only", "destructive", "idempotent", "open_world", "sequential"), (None, True))
        | dict.fromkeys(("return_direct", "skip_permission", "overrides_builtin", "strict_types"), (True,))
        | dict.fromkeys(("converter", "preview", "reconcile"), (None, FUNCTION))
        | dict.fromkeys(("approval", "enabled"), (True, FUNCTION))
        | dict.fromkeys(("max_concurrency", "max_calls"), (None, 5))
        | {"timeout": (None, 5, 1.5), "retry": (None,), "lock": (None,), "rate": (None,), "max_result_bytes": (None,)}
        | {
            "repeats": (),
            "record": (None,),
            "extra": (),
            "on_error": (FUNCTION,),
            "runs_on": (None,),
            "meta": (None, dict),
        }
        | {"substitute_result": (True,), "background": (True,), "ticket_after": (None, 5, 1.5)},
    ),
    "a toolbox": (
        Toolbox,
        dict.fromkeys(("on_elicit", "on_sample", "approver"), (None, FUNCTION))
        | dict.fromkeys(("approvals_file", "name"), (None, "x"))
        | {"rethrow": (), "timeout": (None, 5, 1.5), "retry": (None,), "max_concurrency": (None, 5), "eager": (True,)}
        | {"resolution_fallback": (True,), "on_conflict": (), "naming": (None, FUNCTION)},
    ),
    "a chat": (
        lambda **options: Chat(ScriptedModel([]), **options),
        {"memory": (None,), "runtime": (None,), "limits": (None,), "strategy": (), "execute": (True, FUNCTION)}
        | {"history": (True,), "approver": (None, FUNCTION), "on_limit": ()},
    ),
    "a server": (
        lambda **options: McpServer.stdio("s", "program", **options),
        dict.fromkeys(("trust", "required", "serve_stale"), (True,))
        | dict.fromkeys(("prefix", "description", "cwd", "lock"), (None, "x"))
        | dict.fromkeys(("connect_timeout", "cache_ttl"), (5, 1.5))
        | dict.fromkeys(("timeout", "task_wait"), (None, 5, 1.5))
        | dict.fromkeys(("include", "exclude", "send_context"), ("x",))
        | {"env": (None,), "rename": (), "pin": (None,), "era": ()},
    ),
    "a retry": (Retry, {"attempts": (5,), "delay": (5, 1.5), "factor": (5, 1.5), "jitter": (True,), "on": ()}),
    "limits": (
        Limits,
        {
            "steps": (None, 5),
            "calls": (None, 5),
            "seconds": (None, 5, 1.5),
            "per_tool": (None, 5),
            "answers": (None, 5),
        },
    ),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_an_option_of_a_wrong_type_is_refused_when_it_is_set(what):
    make, options = OPTIONS[what]
    taken = []
    for option, right in options.items():
        for value in [value for value in WRONG if not callable(value)] + [FUNCTION]:
            if any(value is one or (type(value) is type(one) and value == one) or type(value) is one for one in right):
                make(**{option: value})
                continue
            with contextlib.suppress(ToolmasonError):
                make(**{option: value})
                taken.append((option, value))

    assert taken == []


def test_a_wrong_number_of_arguments_stays_an_error_of_python():
    with pytest.raises(TypeError, match="unexpected keyword"):
        CALLABLES["WindowMemory"](size=5)


class Faulty:
    """A source of tools with an error of its own."""

    def __tools__(self):
        return [{}["mine"]]


def test_an_error_of_the_program_is_its_own():
    with pytest.raises(KeyError, match="mine"):
        Toolbox(Faulty())


class Endless:
    """A model whose stream has no end."""

    name = "endless"

    async def respond(self, request):
        return ModelReply("x")

    async def stream(self, request):
        return
        yield


async def test_a_stream_without_an_end_is_an_error_of_the_model():
    with pytest.raises(ToolmasonError, match="endless"):
        async for _ in Chat(Endless(), Toolbox()).stream("hi"):
            pass


@pytest.mark.parametrize("saved", [5, None, {}, [], "x", {"format": 1}])
async def test_a_damaged_save_is_an_error_of_ours(saved):
    with pytest.raises(ToolmasonError):
        await Chat(ScriptedModel(["x"]), Toolbox()).resume(saved)


@pytest.mark.parametrize(("cls", "word", "nearest"), [(Toolbox, "aprover", "approver"), (Chat, "sytem", "system")])
def test_a_misspelt_keyword_is_answered_with_the_nearest(cls, word, nearest):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{word}'.*Did you mean '{nearest}'"):
        cls("offline", **{word: "x"})
