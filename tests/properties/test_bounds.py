"""Whatever a stranger sends, the work for it grows no faster than its size."""

import gc
import json
import math
import signal
from cProfile import Profile
from functools import partial
from time import process_time

import pytest
from pydantic_core import to_json

from properties.hostile import PAIRS, SCHEMA_WALKERS, SCHEMAS, TEXT_WALKERS, TEXTS, bind_pair
from properties.hostile_sources import SOURCES, check_source
from toolmason.errors import UnknownTool

SIZE = 30
MOST_CALLS = 3_000_000
"""Function calls for something small: the budgets of steps of ten calls."""
CALLS_PER_BYTE = 60
SAMPLE = [name for name in SCHEMA_WALKERS if not name.startswith("export")] + [
    f"export to {target}"
    for target in ("openai, strict=auto", "openai, strict=True", "anthropic, strict=True", "gemini, strict=auto")
]


class TooManyCalls(BaseException):
    """Not an Exception, which the functions may catch."""


def count_calls(function, *arguments, limit=math.inf):
    """How many functions a function calls, C functions too."""
    profile = Profile(subcalls=False)

    def count():
        return sum(entry.callcount for entry in profile.getstats())

    def look(number, frame):
        profile.disable()
        if count() > limit:
            raise TooManyCalls
        profile.enable()

    # The profiler of the standard library counts in C, and only looks now and then whether there are too many.
    previous = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.0, 1.0)
    try:
        profile.runcall(function, *arguments)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, previous)
    if count() > limit:
        raise TooManyCalls
    return count()


@pytest.mark.parametrize("family", SCHEMAS)
def test_the_steps_for_a_hostile_schema_are_bounded_by_its_size(family):
    schema = SCHEMAS[family](SIZE)
    limit = MOST_CALLS + CALLS_PER_BYTE * len(to_json(schema))
    for name in SAMPLE:
        try:
            count_calls(SCHEMA_WALKERS[name], schema, limit=limit)
        except TooManyCalls:
            pytest.fail(f"{name}: more than {limit} calls for {len(json.dumps(schema))} bytes")


@pytest.mark.parametrize("name", TEXT_WALKERS)
def test_the_steps_for_hostile_data_are_bounded_by_its_size(name):
    for family, make in TEXTS.items():
        text = make(400)
        limit = 20_000 + CALLS_PER_BYTE * len(text)
        try:
            count_calls(TEXT_WALKERS[name], text, limit=limit)
        except TooManyCalls:
            pytest.fail(f"{family}: more than {limit} calls for {len(text)} characters")


@pytest.mark.parametrize("family", SOURCES)
def test_the_steps_to_check_a_hostile_source_are_bounded_by_its_size(family):
    text = SOURCES[family](200)
    limit = 100_000 + 5 * CALLS_PER_BYTE * len(text)

    try:
        count_calls(check_source, text, limit=limit)
    except TooManyCalls:
        pytest.fail(f"more than {limit} calls for {len(text)} characters")


PAIRS_IN_STEPS = [(family, True) for family in PAIRS] + [
    (family, False) for family in ("nulls for an enum", "many required", "wide values for alternatives")
]


@pytest.mark.parametrize(("family", "remote"), PAIRS_IN_STEPS)
def test_the_steps_for_many_values_of_a_large_schema_are_linear_in_both(family, remote):
    few, many = (count_calls(partial(bind_pair, remote=remote), PAIRS[family](size)) for size in (300, 600))

    assert many < 2.4 * few + 50_000  # the check of a remote tool also ends by time


NAMES = {
    "numbered": lambda number: f"get_customer_record_{number}",
    "one letter": lambda number: "a" * (20 + number % 100) + str(number),
    "two letters": lambda number: "ab" * 50 + str(number),
    "different": lambda number: f"{number * 7919:x}_{number * 104729:x}",
}


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("length", [3, 20, 5_000])
def test_the_steps_for_an_unknown_name_do_not_grow_with_the_number_of_tools(family, length):
    name = (NAMES[family](7) * length)[:length] + "x"
    counts = {}
    for size in (400, 4_000):
        known = [NAMES[family](number) for number in range(size)]
        UnknownTool(name, known)  # indexes the names
        counts[size] = count_calls(UnknownTool, name, known)

    assert counts[4_000] < 2 * counts[400] + 1_000


def test_the_nearest_of_many_names_is_told():
    error = UnknownTool("get_custmer_record_77", [NAMES["numbered"](number) for number in range(5_000)])

    assert error.close[0] == "get_customer_record_77"


LARGE = (200, 400, 800)
UNNOTICED = 0.05
"""Seconds below which a measurement says nothing."""


def seconds_of(function, argument):
    """CPU time without the garbage collector, whose time depends on what else the process holds."""
    gc.disable()
    try:
        started = process_time()
        function(argument)
        return process_time() - started
    finally:
        gc.enable()


def exponent_of(function, make, sizes=LARGE):
    """The exponent with which CPU time grows with the size."""
    points = []
    for size in sizes:
        argument = make(size)
        seconds = min(seconds_of(function, argument) for _ in range(2))
        points.append((math.log(len(to_json(argument))), math.log(max(UNNOTICED, seconds))))
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread > 0.01 else 0.0


@pytest.mark.fuzz
@pytest.mark.timed
@pytest.mark.parametrize("family", SCHEMAS)
def test_the_time_for_a_hostile_schema_is_linear_in_its_size(family):
    found = {name: exponent_of(walk, SCHEMAS[family]) for name, walk in SCHEMA_WALKERS.items()}

    assert {name: round(exponent, 2) for name, exponent in found.items() if exponent > 1.25} == {}


@pytest.mark.fuzz
@pytest.mark.timed
@pytest.mark.parametrize("remote", [False, True], ids=["own", "remote"])
@pytest.mark.parametrize("family", PAIRS)
def test_the_time_for_many_values_of_a_large_schema_is_linear_in_both(family, remote):
    sizes = [5 * size for size in LARGE]

    assert exponent_of(partial(bind_pair, remote=remote), PAIRS[family], sizes) < 1.3


@pytest.mark.fuzz
@pytest.mark.timed
@pytest.mark.parametrize("family", SOURCES)
def test_the_time_to_check_a_hostile_source_is_linear_in_its_size(family):
    assert exponent_of(check_source, SOURCES[family]) < 1.3


@pytest.mark.fuzz
@pytest.mark.timed
@pytest.mark.parametrize("name", TEXT_WALKERS)
def test_the_time_for_hostile_data_is_linear_in_its_size(name):
    sizes = [250 * size for size in LARGE]
    found = {family: exponent_of(TEXT_WALKERS[name], make, sizes) for family, make in TEXTS.items()}

    assert {family: round(exponent, 2) for family, exponent in found.items() if exponent > 1.25} == {}
