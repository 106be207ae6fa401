"""Results that are too long: cut for the model, whole under a handle, bounded, and gone after the run."""

import re

import pytest

from toolmason import EmbeddedResource, Image, Text, Toolbox, ToolError, tool
from toolmason.errors import DefinitionError
from toolmason.extend import EngineSettings

LINES = 10 * 1024 * 1024 // 64
"""Lines of 64 bytes that make up 10 MB."""
TRAILER = re.compile(r"\n\[characters (\d+) to (\d+) of (\d+)\]\Z")
PIXEL = Image(b"\x89PNG" + b"0" * 20)


def line(number: int) -> str:
    return f"line {number:08d} ".ljust(63, ".")


@tool
def ten_megabytes() -> str:
    return "\n".join(map(line, range(LINES))) + "\n"


def says(text: str, **options):
    """Return a toolbox with one tool that returns a text."""

    @tool(**options)
    def say() -> str:
        return text

    return Toolbox(say)


async def cut_result(text: str, limit: int = 1000, **options):
    """Return a toolbox and the cut result of its one tool."""
    box = says(text, max_result_bytes=limit, **options)
    return box, await box.call("say")


async def read(box: Toolbox, handle: str, **how) -> str:
    """Read a part of a kept result, without the line that says where it is from."""
    result = await box.call("read_result", {"handle": handle, **how})
    return TRAILER.sub("", result.unwrap())


async def read_all(box: Toolbox, handle: str, length: int = 65536) -> str:
    """Read a whole result page by page, as a model would."""
    parts, place, total = [], 0, 1
    while place < total:
        text = (await box.call("read_result", {"handle": handle, "offset": place, "length": length})).unwrap()
        place, total = (int(number) for number in TRAILER.search(text).groups()[1:])
        parts.append(TRAILER.sub("", text))
    return "".join(parts)


# --- ten megabytes -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ten():
    """A toolbox that has cut a result of 10 MB, and the result."""
    box = Toolbox(ten_megabytes)
    return box, box.call_sync("ten_megabytes")


def test_what_the_model_gets_of_ten_megabytes_is_bounded(ten):
    _, result = ten

    assert len(result.value) == LINES * 64
    assert len(result.text.encode()) <= EngineSettings().result_bytes
    assert sum(len(part.text.encode()) for part in result.content) <= EngineSettings().result_bytes


def test_the_cut_leaves_whole_lines_and_says_how_much_is_gone(ten):
    _, result = ten

    head, note, tail = re.split(r"\n(\[… .*? …\])\n", result.text)
    left_out, whole = map(int, re.search(r"(\d+) of (\d+) bytes", note).groups())
    assert head.splitlines() == [line(number) for number in range(len(head.splitlines()))]
    assert set(map(len, tail.splitlines())) == {63}
    assert tail.splitlines()[-1] == line(LINES - 1)
    assert whole == LINES * 64
    assert left_out == whole - len(head) - len(tail)
    assert result.meta["handle"] in note
    assert "read_result" in note


@pytest.mark.parametrize("number", [0, 1, LINES // 2, LINES - 2, LINES - 1])
async def test_any_line_of_ten_megabytes_can_be_read_by_its_place(ten, number):
    box, result = ten

    text = await read(box, result.meta["handle"], offset=number * 64, length=63)

    assert text == line(number)


@pytest.mark.parametrize("number", [0, LINES // 2, LINES - 1])
async def test_any_line_of_ten_megabytes_can_be_found(ten, number):
    box, result = ten

    found = await read(box, result.meta["handle"], search=f"LINE {number:08d}")

    assert found == f"{number + 1} (character {number * 64}): {line(number)}"


async def test_the_whole_of_ten_megabytes_can_be_read_page_by_page(ten):
    box, result = ten

    assert await read_all(box, result.meta["handle"]) == result.value


async def test_a_search_with_many_finds_says_how_many_more_there_are(ten):
    box, result = ten

    found = await read(box, result.meta["handle"], search="line")

    assert len(found.splitlines()) == 51
    assert found.endswith(f"[{LINES - 50} more lines]")


async def test_one_line_of_ten_megabytes_is_cut_and_can_be_read():
    text = "a" * 5_000_000 + "NEEDLE" + "b" * 5_000_000
    box, result = await cut_result(text, 10_000)
    handle = result.meta["handle"]

    found = await read(box, handle, search="needle")

    assert len(result.text.encode()) <= 10_000
    assert result.text.startswith("aaa")
    assert result.text.endswith("bbb")
    assert "character 5000000" in found
    assert len(found) < 300
    assert await read(box, handle, offset=5_000_000, length=6) == "NEEDLE"


# --- the cut -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [256, 500, 1000, 4096])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("žluťoučký kůň\n" * 1000, id="two bytes"),
        pytest.param("漢字かな交じり文\n" * 1000, id="three bytes"),
        pytest.param("👩‍👩‍👧🎉" * 2000, id="four bytes, one line"),
        pytest.param("\n" * 5000, id="empty lines"),
        pytest.param("x\r\n" * 3000, id="carriage returns"),
    ],
)
async def test_a_cut_is_within_the_limit_and_valid_utf_8(text, limit):
    box, result = await cut_result(text, limit)

    assert len(result.text.encode()) <= limit
    assert "\ufffd" not in result.text
    assert await read_all(box, result.meta["handle"]) == text


@pytest.mark.parametrize("size", [999, 1000])
async def test_a_result_within_the_limit_is_not_cut(size):
    _, result = await cut_result("x" * size)

    assert result.text == "x" * size
    assert "handle" not in result.meta


async def test_one_byte_too_many_is_cut():
    _, result = await cut_result("x" * 1001)

    assert "bytes left out" in result.text


@pytest.mark.parametrize("policy", [{}, {"max_calls": 9}], ids=["short way", "long way"])
async def test_a_cut_result_has_no_structured_form_and_keeps_its_value(policy):
    @tool(max_result_bytes=500, **policy)
    def numbers() -> list[int]:
        return list(range(1000))

    result = await Toolbox(numbers).call("numbers")

    assert result.structured is None
    assert result.value == list(range(1000))
    assert result.ok


async def test_images_are_kept_beside_a_cut_text():
    @tool(max_result_bytes=500)
    def mixed() -> list:
        return ["x" * 5000, PIXEL]

    result = await Toolbox(mixed).call("mixed")

    assert PIXEL in result.content
    assert [len(part.text) <= 500 for part in result.content if isinstance(part, Text)] == [True]


async def test_the_text_of_an_embedded_resource_is_bounded_too():
    @tool(max_result_bytes=500)
    def resource() -> EmbeddedResource:
        return EmbeddedResource("file:///log", text="x" * 50_000)

    result = await Toolbox(resource).call("resource")

    assert len(result.text) <= 500
    assert sum(len(getattr(part, "text", None) or "") for part in result.content) <= 1000


async def test_the_words_of_a_failure_are_bounded_too():
    @tool(max_result_bytes=1000)
    def fails() -> str:
        raise ToolError("x" * 1_000_000)

    result = await Toolbox(fails).call("fails")

    assert result.error.code == "tool_error"
    assert len(result.text.encode()) <= 2000


async def test_the_cut_is_the_same_in_a_batch_and_through_a_view():
    box = says("x\n" * 5000, max_result_bytes=1000)

    (batch,) = await box.call_all([("say", {})])
    view = await box.prefixed("my_").call("my_say")

    for result in (batch, view):
        assert len(result.text.encode()) <= 1000
        assert await read_all(box, result.meta["handle"]) == "x\n" * 5000


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param({"offset": 0, "length": 10}, "0123456789", id="head"),
        pytest.param({"offset": 5, "length": 3}, "567", id="middle"),
        pytest.param({"offset": -3}, "xyz", id="from the end"),
        pytest.param({"offset": -10_000_000, "length": 2}, "01", id="far before the start"),
        pytest.param({"offset": 10_000_000}, "", id="far behind the end"),
        pytest.param({"offset": 0, "length": 0}, "0", id="no length"),
        pytest.param({"offset": 0, "length": -5}, "0", id="negative length"),
    ],
)
async def test_a_part_can_be_read(how, expected):
    box, result = await cut_result("0123456789" * 500 + "xyz")

    assert await read(box, result.meta["handle"], **how) == expected


@pytest.mark.parametrize("text", ["x" * 500_000, "🎉" * 200_000], ids=["ascii", "emoji"])
async def test_a_huge_length_gives_one_page_and_says_where_it_ends(text):
    box, result = await cut_result(text)

    page = await box.call("read_result", {"handle": result.meta["handle"], "length": 10**9})

    start, end, total = map(int, TRAILER.search(page.text).groups())
    assert (start, total) == (0, len(text))
    assert 0 < end < total
    assert TRAILER.sub("", page.text) == text[:end]


async def test_a_search_without_a_find_says_so():
    box, result = await cut_result("x\n" * 5000)

    assert "No line contains 'nothing'" in await read(box, result.meta["handle"], search="nothing")


@pytest.mark.parametrize("letters", ["a", "ab", "ä", "a\n"])
async def test_a_search_takes_no_longer_than_reading_both_texts(letters):
    """The search of a model or a client: each place of the text once matched almost all of it."""
    box, result = await cut_result(letters * 1_000_000)
    handle = result.meta["handle"]

    assert "No line contains" in await read(box, handle, search=letters * 100_000 + "!")
    assert (await read(box, handle, search="\n" if "\n" in letters else letters)).startswith("1 (character ")


async def test_more_lines_than_are_counted_are_told():
    box, result = await cut_result("a\n" * 300_000)

    assert (await read(box, result.meta["handle"], search="A")).endswith("[more than 199950 more lines]")


async def test_letters_that_grow_in_lower_case_keep_the_positions():
    box, result = await cut_result("İ\n" * 2_000 + "needle")

    assert "2001 (character 4000): needle" in await read(box, result.meta["handle"], search="needle")


async def test_a_search_takes_its_text_as_it_is():
    box, result = await cut_result("a+b\naab\n" * 1000)

    found = await read(box, result.meta["handle"], search="a+b")

    assert "aab" not in found


async def test_a_search_finds_text_of_any_script():
    box, result = await cut_result("žluťoučký\n漢字\n" * 1000)

    found = await read(box, result.meta["handle"], search="ŽLUŤ")

    assert found.startswith("1 (character 0): žluťoučký")


@pytest.mark.parametrize("handle", ["", "result_0_00000000", "../../etc/passwd", "x" * 10_000])
async def test_a_handle_that_does_not_exist_is_a_result_that_says_so(handle, tmp_path):
    box = Toolbox(ten_megabytes, results_dir=tmp_path)

    result = await box.call("read_result", {"handle": handle})

    assert result.error.code == "tool_error"
    assert "No result has the handle" in result.error.message
    assert len(result.text) < 1000


# --- the store -----------------------------------------------------------------------------------


async def test_what_is_kept_is_bounded_and_the_oldest_go_first():
    @tool(max_result_bytes=500)
    def say(number: int) -> str:
        return f"{number}".ljust(1000, ".")

    box = Toolbox(say, settings=EngineSettings(kept_bytes=3500))

    handles = [(await box.call("say", {"number": n})).meta["handle"] for n in range(10)]
    results = [await box.call("read_result", {"handle": handle}) for handle in handles]

    assert [result.ok for result in results] == [False] * 7 + [True] * 3
    assert results[-1].text.startswith("9...")


@pytest.mark.parametrize("text", ["žluť\n" * 1000, "a\r\nb\rc\n" * 1000], ids=["unicode", "line ends"])
async def test_a_directory_keeps_results_as_they_are(tmp_path, text):
    folder = tmp_path / "deep" / "results"
    box = Toolbox(tool(name="say", max_result_bytes=1000)(lambda: text), results_dir=folder)

    result = await box.call("say")

    assert len(list(folder.iterdir())) == 1
    assert await read_all(box, result.meta["handle"]) == text


async def test_a_directory_is_bounded_too(tmp_path):
    box = Toolbox(
        tool(name="say", max_result_bytes=500)(lambda: "x" * 1000),
        results_dir=tmp_path,
        settings=EngineSettings(kept_bytes=2500),
    )

    for _ in range(6):
        await box.call("say")

    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("where", ["memory", "directory"])
async def test_results_are_gone_after_the_run(tmp_path, where):
    folder = tmp_path / "results"
    box = Toolbox(
        tool(name="say", max_result_bytes=500)(lambda: "x" * 1000), results_dir=folder if where == "directory" else None
    )

    async with box.run() as run:
        handle = (await run.call("say")).meta["handle"]
        during = await run.call("read_result", {"handle": handle})
    after = await run.call("read_result", {"handle": handle})

    assert during.ok
    assert not after.ok
    assert not folder.exists() or list(folder.iterdir()) == []


async def test_leaving_a_view_that_is_no_run_drops_nothing():
    box = says("x" * 5000, max_result_bytes=500)
    handle = (await box.call("say")).meta["handle"]

    with box.select("say"):
        pass

    assert (await box.call("read_result", {"handle": handle})).ok


async def test_one_run_does_not_read_the_results_of_another():
    box = says("x" * 5000, max_result_bytes=500)

    with box.run() as first, box.run() as second:
        handle = (await first.call("say")).meta["handle"]
        result = await second.call("read_result", {"handle": handle})

    assert result.error.code == "tool_error"


# --- the tool ------------------------------------------------------------------------------------


async def test_read_result_is_offered_only_when_something_was_cut():
    box = says("x" * 5000, max_result_bytes=500)

    before = [item.name for item in box.tools]
    await box.call("say")
    after = [item.name for item in box.tools]

    assert before == ["say"]
    assert after == ["read_result", "say"]
    assert [item.name for item in await box.list()] == after


async def test_read_result_is_not_offered_after_the_run():
    with says("x" * 5000, max_result_bytes=500).run() as run:
        await run.call("say")
        during = [item.name for item in run.tools]

    assert during == ["read_result", "say"]
    assert [item.name for item in run.tools] == ["say"]


@tool(name="read_result")
def mine(handle: str = "") -> str:
    return "mine"


@tool(name="read_result", overrides_builtin=True)
def mine_on_purpose(handle: str = "") -> str:
    return "mine"


def test_a_tool_of_the_name_read_result_is_refused():
    with pytest.raises(DefinitionError, match="overrides_builtin=True"):
        Toolbox(mine)


async def test_a_tool_that_says_so_takes_the_place_of_read_result():
    @tool(max_result_bytes=500)
    def say() -> str:
        return "x" * 5000

    box = Toolbox(mine_on_purpose, say)
    await box.call("say")

    assert (await box.call("read_result")).text == "mine"
    assert [item.name for item in box.tools] == ["read_result", "say"]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda box: box.renamed({"say": "read_result"}), id="renamed"),
        pytest.param(lambda box: box.renamed({"say": "result"}).prefixed("read_"), id="prefixed"),
        pytest.param(lambda box: Toolbox(tool(name="Read_Result")(lambda: 1)), id="other case"),
    ],
)
def test_no_view_takes_the_name_read_result_in_silence(make):
    box = says("short")

    with pytest.raises(DefinitionError, match="read_result"):
        make(box)
