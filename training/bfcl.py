"""Make training examples from the half of BFCL that the evaluation does not use.

Held out: the odd numbers of `simple_python` and `multiple`, and all of `irrelevance` and `live_irrelevance`.
"""

from __future__ import annotations

import ast
import copy
import json
import random
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from generate import Example  # noqa: E402 - the path comes first
from live.corpus import FOLDER, lines, normal, questions  # noqa: E402 - as above
from values import ValueMaker  # noqa: E402 - as above

from toolmason import ToolDefinition  # noqa: E402 - as above
from toolmason_local.prompts import Turn, format_call  # noqa: E402 - as above

USED = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
HALVED = ("simple_python", "multiple")
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:\.\d+)?(?![\w,]|\.\d)")
MAX_SHARED = 0.7
"""Share of words from which a request counts as one of the evaluation."""
MAX_CHARS = 3000
"""Longer conversations are left out."""


def is_held_out(question: dict[str, Any]) -> bool:
    """Return True if a question belongs to the evaluation."""
    number = int(re.findall(r"\d+", question["id"])[0])
    return question["kind"] in HALVED and number % 2 == 1


class HeldOut:
    """Words of each request of the evaluation."""

    def __init__(self) -> None:
        self.words = [_words(_text(one)) for one in questions() if is_held_out(one) or "irrelevance" in one["kind"]]
        for file in sorted((Path(__file__).parents[1] / "tests" / "data").glob("*_prompts.json")):
            boxes = json.loads(file.read_text("utf-8"))
            self.words += [_words(case["prompt"]) for box in boxes for case in box["cases"]]

    def repeats(self, text: str) -> bool:
        """Return True if a text repeats a request of the evaluation: some questions of BFCL occur in several kinds."""
        words = _words(text)
        return any(len(words & other) > MAX_SHARED * len(words | other) for other in self.words)


def make_definition(function: dict[str, Any]) -> ToolDefinition:
    """Return a function of the corpus as a definition."""
    return ToolDefinition(
        function["name"], function["description"], {"type": "object", **normal(function["parameters"])}
    )


def read_items() -> list[tuple[list[ToolDefinition], str, list[tuple[str, dict[str, Any]]]]]:
    """Return tools, text and calls of every question for training."""
    held_out = HeldOut()
    items = []
    for question in questions():
        if question["kind"] not in USED or is_held_out(question) or not question["calls"]:
            continue
        text = _text(question)
        if held_out.repeats(text):
            continue
        tools = [make_definition(function) for function in question["function"]]
        schemas = {tool.name: tool.input_schema for tool in tools}
        calls = [
            (name, choose_arguments(truth, schemas[name], text))
            for call in question["calls"]
            for name, truth in call.items()
            if name in schemas
        ]
        if len(calls) == len(question["calls"]):
            items.append((tools, text, calls))
    return items + read_executable()


def read_executable() -> list[tuple[list[ToolDefinition], str, list[tuple[str, dict[str, Any]]]]]:
    """Return the questions of the executable sets, whose answers are Python calls."""
    wheel = sorted(FOLDER.glob("bfcl_eval-*.whl"))[-1]
    base = "bfcl_eval/data/unused_datasets"
    items = []
    with zipfile.ZipFile(wheel) as archive:
        for kind in ("exec_simple", "exec_multiple", "exec_parallel", "exec_parallel_multiple"):
            truths = {
                one["id"]: one["ground_truth"] for one in lines(archive, f"{base}/possible_answer/BFCL_v4_{kind}.json")
            }
            for question in lines(archive, f"{base}/question/BFCL_v4_{kind}.json"):
                tools = [make_definition(function) for function in question["function"]]
                calls = [_parse_call(text) for text in truths.get(question["id"], ())]
                if calls and all(call is not None for call in calls):
                    schemas = {tool.name: tool.input_schema for tool in tools}
                    calls = [(name, _sort(arguments, schemas.get(name, {}))) for name, arguments in calls]
                    items.append((tools, _text(question), calls))
    return items


def _parse_call(text: str) -> tuple[str, dict[str, Any]] | None:
    try:
        call = ast.parse(text.strip(), mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return ast.unparse(call.func), {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        return None


def choose_arguments(truth: dict[str, Any], schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Return one of the accepted arguments: an optional one only if the text mentions its value."""
    chosen = {}
    lowered = text.lower()
    for name, accepted in truth.items():
        options = accepted if isinstance(accepted, list) else [accepted]
        real = [one for one in options if one != ""]
        if not real:
            continue
        mentioned = [one for one in real if str(one).lower() in lowered]
        if "" in options and not mentioned:
            continue
        value = (mentioned or real)[0]
        if isinstance(value, dict):
            part = schema.get("properties", {}).get(name, {})
            value = choose_arguments(value, part, text)
        elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
            value = [choose_arguments(one, {}, text) if isinstance(one, dict) else one for one in value]
        chosen[name] = value
    return _sort(chosen, schema)


def _sort(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    order = list(schema.get("properties", {}))
    return dict(sorted(arguments.items(), key=lambda item: order.index(item[0]) if item[0] in order else 99))


class BfclMaker:
    """Maker of varied examples from the questions."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values = ValueMaker(self.rng)
        self.items = read_items()
        self.pool = list({tool.name: tool for tools, _, _ in self.items for tool in tools}.values())

    def make_all(self, copies: int) -> list[Example]:
        """Return some varied copies of every question, and as many with tools that do not fit."""
        examples = []
        for tools, text, calls in self.items:
            for copy_number in range(copies):
                changed_text, changed_calls = self._change(text, calls) if copy_number else (text, calls)
                examples.append(self._example(tools, changed_text, changed_calls))
            for _ in range(max(1, copies // 3)):
                examples.append(self._unanswerable(tools, text, calls))
        return [one for one in examples if sum(len(turn.text) for turn in one.turns) + len(one.reply) < MAX_CHARS]

    def _example(self, tools: list[ToolDefinition], text: str, calls: list[tuple[str, dict[str, Any]]]) -> Example:
        names = {name for name, _ in calls}
        right = [tool for tool in tools if tool.name in names]
        others = [tool for tool in tools if tool.name not in names]
        if len(others) < 5 and self.rng.random() < 0.5:
            others += [one for one in self.rng.sample(self.pool, self.rng.randint(1, 4)) if one.name not in names]
        kept = right + self.rng.sample(others, min(len(others), 7))
        kept = list({tool.name: tool for tool in kept}.values())
        self.rng.shuffle(kept)
        renamed = {}
        if self.rng.random() < 0.15:
            renamed = {tool.name: tool.name.rpartition(".")[2] for tool in kept}
            if len(set(renamed.values())) < len(kept):
                renamed = {}
        kept = [self._vary(tool, renamed.get(tool.name, tool.name)) for tool in kept]
        orders = {tool.name: tool.input_schema for tool in kept}
        reply = "\n".join(
            format_call(renamed.get(name, name), _sort(arguments, orders.get(renamed.get(name, name), {})))
            for name, arguments in calls[:4]
        )
        return Example(kept, [Turn("user", text)], reply)

    def _unanswerable(self, tools: list[ToolDefinition], text: str, calls: list[tuple[str, dict[str, Any]]]) -> Example:
        names = {name for name, _ in calls}
        others = [tool for tool in tools if tool.name not in names]
        if not others or self.rng.random() < 0.5:
            others = [one for one in self.rng.sample(self.pool, self.rng.randint(1, 5)) if one.name not in names]
        others = self.rng.sample(others, min(len(others), 7))
        return Example([self._vary(tool, tool.name) for tool in others], [Turn("user", text)], "none")

    def _vary(self, tool: ToolDefinition, name: str) -> ToolDefinition:
        schema = copy.deepcopy(dict(tool.input_schema))
        properties = schema.get("properties", {})
        if self.rng.random() < 0.2:
            keys = list(properties)
            self.rng.shuffle(keys)
            schema["properties"] = properties = {key: properties[key] for key in keys}
        if self.rng.random() < 0.15:
            for part in properties.values():
                part.pop("description", None)
        return ToolDefinition(name, tool.description, schema)

    def _change(
        self, text: str, calls: list[tuple[str, dict[str, Any]]]
    ) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
        """Replace numbers and cities that occur once in the text and in the arguments."""
        encoded = json.dumps(calls, ensure_ascii=False)
        for number in set(NUMBER.findall(text)):
            if self.rng.random() < 0.5 or len(NUMBER.findall(text)) > 12:
                continue
            in_text = len([one for one in NUMBER.findall(text) if one == number])
            pattern = re.compile(rf"(?<![\w.\"'-]){re.escape(number)}(?:\.0)?(?![\w\"']|\.\d)")
            if in_text != 1 or len(pattern.findall(encoded)) != 1:
                continue
            new = self._similar(number)
            text = re.sub(rf"(?<![\w.,-]){re.escape(number)}(?![\w,]|\.\d)", new, text, count=1)
            encoded = pattern.sub(new, encoded, count=1)
        for city in re.findall(
            r"\b(?:New York|San Francisco|Los Angeles|London|Paris|Tokyo|Berlin|Boston|Chicago|Seattle|Madrid|Rome|Miami|Sydney)\b",
            text,
        ):
            if text.count(city) == 1 and encoded.count(city) == 1 and self.rng.random() < 0.6:
                new = self.values.make("city").spoken
                if new not in text:
                    text, encoded = text.replace(city, new), encoded.replace(city, new)
        return text, [(name, arguments) for name, arguments in json.loads(encoded)]

    def _similar(self, number: str) -> str:
        if "." in number:
            digits = len(number.partition(".")[2])
            return f"{float(number) * self.rng.uniform(0.4, 2.5):.{digits}f}"
        value = int(number)
        if 1900 < value < 2100:
            return str(self.rng.randint(1950, 2030))
        return str(self.rng.randint(2, 9) if value < 10 else self.rng.randint(max(10, value // 3), value * 3))


def make_chat(rng: random.Random, pool: list[ToolDefinition]) -> list[Example]:
    """Return the questions that need no tool, each with some tools."""
    wheel = sorted(FOLDER.glob("bfcl_eval-*.whl"))[-1]
    with zipfile.ZipFile(wheel) as archive:
        asked = lines(archive, "bfcl_eval/data/unused_datasets/question/BFCL_v4_chatable.json")
    return [Example(rng.sample(pool, rng.randint(1, 5)), [Turn("user", _text(one))], "none") for one in asked]


def _text(question: dict[str, Any]) -> str:
    if isinstance(question["question"], str):
        return question["question"]
    first = question["question"][0]
    if isinstance(first, str):
        return first
    messages = first if isinstance(first, list) else [first]
    return "\n".join(one["content"] for one in messages if one["role"] == "user")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
