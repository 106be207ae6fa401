"""TM311 to TM313: what the body of a tool does."""

import pytest

HEAD = """import asyncio, os, shutil, subprocess, tempfile, time
import httpx, requests
import urllib.request
from pathlib import Path
from typing import Annotated, Literal
from toolmason import *
ROOT = Path("root")
"""


# --- blocking calls ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "⟦TM311⟧time.sleep(1)",
        "return ⟦TM311⟧requests.get('https://example.com').text",
        "return ⟦TM311⟧httpx.post('https://example.com')",
        "⟦TM311⟧urllib.request.urlopen('https://example.com')",
        "⟦TM311⟧subprocess.run(['ls'])",
        "⟦TM311⟧os.system('ls')",
        "for _ in range(3): ⟦TM311⟧time.sleep(1)",
        "await asyncio.gather(*[⟦TM311⟧requests.get(u) for u in ()])",
        "await asyncio.sleep(1)",
        "await asyncio.to_thread(time.sleep, 1)",
        "await asyncio.to_thread(lambda: time.sleep(1))",
        "async with httpx.AsyncClient() as client: await client.get('https://example.com')",
        "await asyncio.create_subprocess_exec('ls')",
        "sleep(1)",
        "clock.time.sleep(1)",
    ],
)
def test_an_async_tool_does_not_block(folder, body):
    folder.agrees(f"{HEAD}@tool\nasync def act():\n    'Do.'\n    {body}\n")


def test_a_function_inside_a_tool_may_run_in_a_thread(folder):
    folder.agrees(
        f"{HEAD}@tool\nasync def act():\n    'Do.'\n    def wait():\n        time.sleep(1)\n"
        "    await asyncio.to_thread(wait)\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        "@tool\ndef act",
        "@tool(runs_on='thread')\nasync def act",
        "@tool(runs_on='process')\nasync def act",
        "@prompt\nasync def act",
        "async def act",
    ],
)
def test_a_tool_that_does_not_run_on_the_loop_may_block(folder, head):
    folder.agrees(f"{HEAD}{head}():\n    'Do.'\n    time.sleep(1)\n")


# --- paths from the model ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "return ⟦TM312⟧open(x).read()",
        "with ⟦TM312⟧open(f'notes/{x}') as file: return file.read()",
        "return ⟦TM312⟧open('notes/' + x).read()",
        "return ⟦TM312⟧open(os.path.join('notes', x)).read()",
        "return ⟦TM312⟧Path(x).read_text()",
        "return ⟦TM312⟧(ROOT / x).read_text()",
        "⟦TM312⟧(ROOT / x).resolve().write_text('a')",
        "return list(⟦TM312⟧ROOT.joinpath(x).iterdir())",
        "path = ROOT / x; ⟦TM312⟧path.write_bytes(b'')",
        "path: Path = Path(x).expanduser(); return ⟦TM312⟧path.open()",
        "return ⟦TM312⟧os.listdir(x)",
        "⟦TM312⟧shutil.copy('a', x)",
        "return x.replace('a', 'b')",
        "return open('notes.txt').read() + x",
        "path = find_note(x); return path.read_text()",
        "return open(find_note(x)).read()",
        "return NOTES[x].read_text()",
        "path = (ROOT / x).resolve()\n    if path.is_relative_to(ROOT): return path.read_text()",
        "path = (ROOT / x).resolve(); path.relative_to(ROOT); return path.read_text()",
        "path = os.path.realpath(x)\n    if path.startswith('/srv/'): return open(path).read()",
        "return (ROOT / secure_filename(x)).read_text()",
        "return client.open(x)",
        "return opened(x)",
    ],
)
def test_a_path_of_the_model_is_kept_within_a_folder(folder, body):
    folder.agrees(f"{HEAD}@tool\ndef act(x: Annotated[str, 'What']):\n    'Do.'\n    {body}\n")


def test_a_path_that_is_not_opened_is_said_to_be_used(folder):
    folder.write({"app.py": f"{HEAD}@tool\ndef act(x: Annotated[str, 'What']):\n    'Do.'\n    os.remove(x)\n"})

    [found] = folder.check("app.py").findings

    assert found.message == "`os.remove` uses a path that the model chose, and the tool does not limit it"


@pytest.mark.parametrize(
    ("hint", "body"),
    [
        ("Path", "return ⟦TM312⟧x.read_text()"),
        ("Path | None", "return ⟦TM312⟧x.read_text()"),
        ("str | None", "return ⟦TM312⟧open(x).read()"),
        ("Path", "⟦TM312⟧x.rename('a')"),
        ("Literal['a', 'b']", "return open(x).read()"),
        ("int", "return (ROOT / f'{x}.txt').read_text()"),
        ("Note", "return x.read_text()"),
    ],
)
def test_the_type_says_what_can_be_a_path(folder, hint, body):
    head = f"{HEAD}from elsewhere import Note\n@tool\ndef act(x: Annotated[{hint}, 'What']):"
    folder.agrees(f"{head}\n    'Do.'\n    {body}\n")


@pytest.mark.parametrize("words", ["approval=True", "approval=ask", "preview=show"])
def test_a_path_that_a_person_approves_is_left_alone(folder, words):
    folder.agrees(f"{HEAD}@tool({words})\ndef act(x: Annotated[str, 'What']):\n    'Do.'\n    open(x)\n")


def test_a_path_of_the_application_is_left_alone(folder):
    folder.agrees(f"{HEAD}@tool\ndef act(project_dir: Path, x: Annotated[str, Inject]):\n    'Do.'\n    open(x)\n")


# --- deletion in a read-only tool --------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "⟦TM313⟧os.remove('a')",
        "⟦TM313⟧shutil.rmtree('a')",
        "⟦TM313⟧ROOT.unlink()",
        "⟦TM313⟧(ROOT / 'a').rmdir()",
        "⟦TM313⟧requests.delete('https://example.com')",
        "db.execute(⟦TM313⟧'DELETE FROM orders')",
        "db.execute(⟦TM313⟧'  drop table orders')",
        "db.execute(⟦TM313⟧'SELECT 1; TRUNCATE orders')",
        "sql = ⟦TM313⟧'DELETE\\n FROM orders WHERE id = ?'",
        "db.execute('SELECT * FROM deleted_orders')",
        "db.execute('SELECT deleted FROM orders')",
        "return 'Use DELETE to remove an order.'",
        "cart.remove('a')",
        "os.listdir('a')",
        "with tempfile.NamedTemporaryFile(delete=False) as file: os.unlink(file.name)",
    ],
)
def test_a_read_only_tool_deletes_nothing(folder, body):
    folder.agrees(f"{HEAD}@tool(read_only=True)\ndef act():\n    'Drop table is SQL.'\n    {body}\n")


@pytest.mark.parametrize("words", ["", "read_only=False", "destructive=True, approval=True", "read_only=flag"])
def test_another_tool_may_delete(folder, words):
    folder.agrees(f"{HEAD}@tool({words})\ndef act():\n    'Do.'\n    os.remove('a')\n")
