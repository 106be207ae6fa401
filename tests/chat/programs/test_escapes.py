"""Programs that try to leave the sandbox: known escapes of Python sandboxes, and random programs."""

import os
import random
import re
from pathlib import Path

import pytest

from toolmason import Chat, Toolbox, tool
from toolmason.chat import Code
from toolmason.testing import ScriptedModel

SECRET = "sesame-of-the-host"  # noqa: S105 - of a test
LIMITS = Code(cpu_seconds=0.5, memory_bytes=20_000_000, output_chars=5000, calls=10, seconds=30)
ESCAPES = [
    # Files, environment, processes and network, in plain words.
    "open({file!r}).read()",
    "open({file!r}, 'w').write('x')",
    "open('/proc/self/environ').read()",
    "open('/proc/self/mem', 'rb').read(10)",
    "open(0).read()",
    "from pathlib import Path\nPath({file!r}).read_text()",
    "from pathlib import Path\nPath({new!r}).write_text('x')",
    "from pathlib import Path\nPath({file!r}).unlink()",
    "from pathlib import Path\nlist(Path('/').iterdir())",
    "from pathlib import Path\nPath({new!r}).symlink_to({file!r})",
    "import os\nos.environ",
    "import os\nos.environ['SECRET_OF_HOST']",
    "import os\nos.getenv('SECRET_OF_HOST')",
    "import os\nos.system('touch {new}')",
    "import os\nos.popen('cat {file}').read()",
    "import os\nos.listdir('/')",
    "import os\nos.execv('/bin/sh', ['sh'])",
    "import os\nos.fork()",
    "import os\nos.kill(os.getppid(), 9)",
    "import os\nos._exit(0)",
    "import os\nos.path.exists({file!r}) and os.rename({file!r}, {new!r})",
    "import sys\nsys.modules['os'].system('touch {new}')",
    "import sys\nsys.exit()",
    "import sys\nsys._getframe()",
    "import sys\nsys.stdin.read()",
    "import sys\nsys.settrace(print)",
    "import subprocess\nsubprocess.run(['touch', {new!r}])",
    "import socket\nsocket.create_connection(('127.0.0.1', 22))",
    "import urllib.request\nurllib.request.urlopen('file://{file}').read()",
    "import ctypes\nctypes.string_at(0)",
    "import pickle\npickle.loads(b\"cos\\nsystem\\n(S'touch {new}'\\ntR.\")",
    "import importlib\nimportlib.import_module('os').system('id')",
    "import builtins\nbuiltins.open({file!r}).read()",
    "import io\nio.open({file!r}).read()",
    "import io\nio.FileIO({file!r}).read()",
    "import codecs\ncodecs.open({file!r}).read()",
    "import shutil\nshutil.copy({file!r}, {new!r})",
    "import gc\ngc.get_objects()",
    "import inspect\ninspect.stack()",
    "import threading\nthreading.enumerate()",
    "import multiprocessing",
    "import signal\nsignal.raise_signal(9)",
    "import resource",
    "import pydantic_monty",
    "import toolmason",
    "from os import *\nsystem('touch {new}')",
    "__import__('os').system('touch {new}')",
    "__builtins__['open']({file!r})",
    "__builtins__.__import__('os')",
    "__loader__.load_module('os')",
    "__spec__.loader",
    "globals()['__builtins__']",
    "vars()",
    "breakpoint()",
    "help()",
    "input()",
    "compile('1', '', 'eval')",
    "eval(\"__import__('os').system('touch {new}')\")",
    "exec(\"import os; os.system('touch {new}')\")",
    "eval('open({file!r}).read()')",
    "memoryview(b'abc').obj",
    # Through the classes of values.
    "().__class__.__base__.__subclasses__()",
    "''.__class__.__mro__[1].__subclasses__()",
    "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen'][0]('id')",
    "type('X', (), {{}})().__class__.__init__.__globals__",
    "(lambda: 0).__globals__['__builtins__']",
    "(lambda: 0).__code__.co_consts",
    "(lambda: 0).__code__.replace(co_code=b'd\\x00S\\x00')",
    "(lambda: 0).__closure__",
    "type.__getattribute__(type, '__subclasses__')(object)",
    "object.__getattribute__(1, '__class__')",
    "getattr((), '__cla' + 'ss__')",
    "getattr(stock, '__globals__')",
    "stock.__globals__['os']",
    "stock.__self__",
    "stock.__class__.__base__.__subclasses__()",
    "type(stock)(1)",
    "type(stock).__call__(stock, {file!r})",
    "setattr(stock, '__code__', None)",
    "print.__self__.open({file!r})",
    "print.__self__.__import__('os')",
    "str.format('{{0.__class__.__init__.__globals__}}', stock)",
    "'{{0.__class__.__mro__[1].__subclasses__}}'.format('')",
    "f'{{stock.__globals__}}'",
    "str.format_map('{{x.__class__}}', {{'x': stock}})",
    # Through exceptions, frames and generators.
    "try:\n    1/0\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_globals",
    "try:\n    1/0\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_back.f_back.f_locals",
    "try:\n    unknown\nexcept NameError as e:\n    print(e.__class__.__base__.__base__.__subclasses__())",
    "try:\n    stock(3)\nexcept RuntimeError as e:\n    print(e.__context__, e.__cause__, e.__traceback__)",
    "g = (x for x in [1])\ng.gi_frame.f_back.f_globals",
    "async def f(): pass\nf().cr_frame.f_globals",
    "try:\n    raise BaseException\nexcept:\n    print(1)",
    # Through hooks of classes.
    "class A:\n    def __getattr__(self, n): return stock\nA().x.__globals__",
    "class A(Exception):\n    def __str__(self): return open({file!r}).read()\nraise A",
    "class A:\n    def __repr__(self): return open({file!r}).read()\nA()",
    "class A:\n    def __del__(self): open({new!r}, 'w')\nA()",
    "class A(type):\n    def __prepare__(*a): return open({file!r})\nclass B(metaclass=A): pass",
    "class A:\n    def __reduce__(self): return (open, ({file!r},))\nstock(A())",
    "class A(str):\n    def __str__(self): return open({file!r}).read()\nstock(A('x'))",
    "class A(dict):\n    def keys(self): return ['article']\nstock(**A())",
    "def d(f): return open({file!r})\n@d\ndef g(): pass",
    "with open({file!r}) as f: f.read()",
    "async def f():\n    async with open({file!r}) as x: pass\nawait f()",
    "match stock:\n    case object(__globals__=g): print(g)",
    # Crashes and floods.
    "a = []\nfor _ in range(100_000): a = [a]\nprint(a)",
    "a = ()\nfor _ in range(100_000): a = (a,)\nhash(a)",
    "x = []\nx.append(x)\nprint(x)\nstock(x)",
    "stock({{1: 2}})",
    "stock(float('nan'))",
    "stock('\\ud800')",
    "stock(b'\\xff')",
    "stock(10 ** 5000)",
    "10 ** 5000",
    "'%1000000000d' % 1",
    "f'{{1:1000000000}}'",
    "'a'.ljust(10 ** 10)",
    "bytes(10 ** 10)",
    "list(range(10 ** 10))",
    "sum(range(10 ** 12))",
    "sorted([stock] * 3)",
    "import re\nre.match('(a*)*b', 'a' * 100)",
    "import json\njson.loads('[' * 100_000)",
    "eval('(' * 10_000)",
    "eval('-' * 100_000 + '1')",
    "'x' * 2 ** 62",
    "1 << 10 ** 10",
    "int('9' * 100_000)",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "while True:\n    try:\n        'a' * 10 ** 10\n    except BaseException: pass",
    "def f():\n    try:\n        f()\n    finally:\n        f()\nf()",
    "while True: print('x' * 1000)",
    "\x00",
    "\ud800",
    "# coding: utf-7\n+AG8AcABlAG4-('x')",
]


class Host:
    """A host with a secret file and variable, and one tool."""

    def __init__(self, folder: Path) -> None:
        self.file, self.new = folder / "secret.txt", folder / "made"
        self.file.write_text(SECRET, "utf-8")
        self.called: list[str] = []

        @tool
        def stock(article: str) -> int:
            """Count an article."""
            self.called.append(article)
            return len(article)

        self.box = Toolbox(stock)

    async def run(self, code: str) -> str:
        """Run a program, and return its output if it has left no trace on the host."""
        chat = Chat(ScriptedModel([[("run_code", {"code": code})], "done"]), self.box, code=LIMITS)
        reply = await chat.send("go")
        text = reply.results[0].text
        assert SECRET not in text
        assert not self.new.exists()
        assert self.file.read_text("utf-8") == SECRET
        assert all(isinstance(article, str) for article in self.called)
        assert len(text) < 12_000
        return text


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_OF_HOST", SECRET)
    return Host(tmp_path)


@pytest.mark.parametrize("program", ESCAPES, ids=range(len(ESCAPES)))
async def test_an_escape_leaves_no_trace(host, program):
    code = re.sub(r"\{(file|new)!r\}", lambda found: repr(str(getattr(host, found[1]))), program)
    code = re.sub(r"\{(file|new)\}", lambda found: str(getattr(host, found[1])), code)

    await host.run(code.replace("{{", "{").replace("}}", "}"))


async def test_the_sandbox_is_a_process_of_its_own_that_may_die(host):
    from toolmason.chat.programs import program_model

    text = await host.run("stock('a')")
    pool = program_model.open_pool()
    with pool.checkout() as session:
        os.kill(session.worker_pid, 9)

    assert text == "1"
    assert await host.run("stock('abc')") == "3"


NAMES = [
    "__class__",
    "__base__",
    "__bases__",
    "__mro__",
    "__subclasses__",
    "__globals__",
    "__builtins__",
    "__dict__",
    "__code__",
    "__closure__",
    "__init__",
    "__import__",
    "__loader__",
    "__reduce_ex__",
    "__getattribute__",
    "f_globals",
    "f_back",
    "gi_frame",
    "tb_frame",
    "co_consts",
    "__self__",
    "__func__",
    "__wrapped__",
    "__module__",
    "__doc__",
    "__name__",
    "open",
    "read",
    "environ",
    "system",
    "path",
    "modules",
    "append",
    "format",
    "join",
]
VALUES = [
    "stock",
    "()",
    "''",
    "[]",
    "{}",
    "1",
    "1.5",
    "print",
    "len",
    "type",
    "object",
    "str",
    "Exception('x')",
    "f",
    "A()",
    "A",
]
IMPORTS = ["os", "sys", "json", "re", "math", "asyncio", "typing", "pathlib", "datetime", "builtins", "types", "ctypes"]


def make_expression(chance: random.Random, depth: int) -> str:
    """Return a random expression that reaches for what a sandbox has to hide."""
    if depth == 0 or chance.random() < 0.15:
        return chance.choice([*VALUES, *IMPORTS])
    inner = make_expression(chance, depth - 1)
    other = make_expression(chance, depth - 1)
    return chance.choice(
        [
            f"({inner}).{chance.choice(NAMES)}",
            f"getattr({inner}, {chance.choice(NAMES)!r})",
            f"({inner})({other})",
            f"({inner})()",
            f"({inner})[{other}]",
            f"[{inner} for x in [{other}]]",
            f"(lambda x: {inner})({other})",
            f"{{'a': {inner}}}",
            f"f'{{{inner.replace(chr(39), chr(34))}}}'" if '"' not in inner else inner,
            f"({inner} if {other} else 1)",
            f"({inner} + {other})",
            f"stock({inner})",
        ]
    )


def make_program(chance: random.Random) -> str:
    lines = [f"try:\n    import {name}\nexcept BaseException: pass" for name in chance.sample(IMPORTS, 4)]
    lines += ["def f(x=1): return x", "class A:\n    x = 1\n    def m(self): return self"]
    for _ in range(chance.randint(1, 4)):
        expression = make_expression(chance, chance.randint(1, 5))
        lines.append(f"try:\n    print({expression})\nexcept BaseException as e:\n    print(e)")
    return "\n".join(lines)


@pytest.mark.fuzz
async def test_random_programs_leave_no_trace(host, fuzz_count):
    chance = random.Random(25)  # noqa: S311 - the same programs every time

    for _ in range(fuzz_count // 10):
        await host.run(make_program(chance))


@pytest.mark.fuzz
async def test_random_text_leaves_no_trace(host, fuzz_count):
    chance = random.Random(26)  # noqa: S311 - as above

    for _ in range(fuzz_count // 20):
        code = list(make_program(chance))
        for _ in range(chance.randint(1, 20)):
            code[chance.randrange(len(code))] = chr(chance.choice([*range(128), 0xD800, 0x2028, 0x1F600]))
        await host.run("".join(code))
