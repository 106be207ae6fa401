"""How often the local model chooses the right tool and fills in the right arguments: on a half of BFCL kept for this.

`make local-eval` runs it. The questions of `simple_python` and `multiple` with odd numbers are judged; everything in
`toolmason.models` that was tuned was tuned on those with even numbers (`--half even` judges them). `irrelevance`
tells how often a text for which there is no tool is left without one. `--sample N` judges every Nth question.
"""

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from live.corpus import normal, questions  # noqa: E402 - the path comes first
from toolmason import ToolDefinition  # noqa: E402 - as above
from toolmason_local.choose_tool import choose_tool  # noqa: E402 - as above
from toolmason_local.engine import get_engine  # noqa: E402 - as above
from toolmason_local.fill_arguments import fill_arguments  # noqa: E402 - as above
from toolmason_local.smallest_values import is_valid  # noqa: E402 - as above
from toolmason_local.weights import find_weights  # noqa: E402 - as above

KINDS = ("simple_python", "multiple", "irrelevance")
IGNORED = str.maketrans("", "", " ,./-_*^'\"")
"""BFCL's own checker compares texts without case, spaces and these."""


def definition(function):
    return ToolDefinition(
        function["name"], function["description"], {"type": "object", **normal(function["parameters"])}
    )


def is_same(value, wanted):
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(value, str) and isinstance(wanted, str):
        return value.lower().translate(IGNORED) == wanted.lower().translate(IGNORED)
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(is_same, value, wanted))
    if isinstance(value, dict) and isinstance(wanted, dict):
        return is_exact(value, wanted)
    return value == wanted


def is_exact(arguments, truth):
    """Every argument acceptable, none missing that may not be, none invented."""
    if arguments.keys() - truth.keys():
        return False
    return all(
        any(is_same(arguments[name], one) for one in accepted) if name in arguments else "" in accepted
        for name, accepted in truth.items()
    )


def judge(writer, question):
    text = question["question"][0][-1]["content"]
    tools = [definition(function) for function in question["function"]]
    tool = choose_tool(writer, text, tools)
    if not question["calls"]:
        return {"chosen": tool is None}
    ((name, truth),) = question["calls"][0].items()
    right = next(one for one in tools if one.name == name)
    # The arguments are judged for the right tool, whatever was chosen: otherwise one mistake counts twice.
    arguments = fill_arguments(writer, right, text)
    valid = arguments is not None and is_valid(arguments, right.input_schema)
    return {"chosen": tool is right, "valid": valid, "exact": valid and is_exact(arguments, truth)}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--half", choices=("odd", "even"), default="odd")
    options.add_argument("--sample", type=int, default=1)
    given = options.parse_args()
    parity = given.half == "odd"
    writer = get_engine(find_weights(None)).start_session(lambda: False)
    totals = {}
    for kind in KINDS:
        asked = [q for q in questions() if q["kind"] == kind and int(q["id"].rsplit("_", 1)[1]) % 2 == parity]
        began = time.perf_counter()
        judged = [judge(writer, question) for question in asked[:: given.sample]]
        seconds = (time.perf_counter() - began) / len(judged)
        figures = {what: sum(one[what] for one in judged) for what in judged[0]}
        totals[kind] = {"cases": len(judged), **figures, "seconds_each": round(seconds, 2)}
        shown = "  ".join(f"{what} {count / len(judged):.3f}" for what, count in figures.items())
        print(f"{kind:14} {len(judged):4} cases  {shown}  {seconds:.2f} s each", flush=True)
    both = [totals["simple_python"], totals["multiple"]]
    cases = sum(one["cases"] for one in both)
    shares = {what: sum(one[what] for one in both) / cases for what in ("chosen", "valid", "exact")}
    print(json.dumps({"half": given.half, "cases": cases, **{k: round(v, 3) for k, v in shares.items()}, "by": totals}))
    if given.sample == 1 and (shares["chosen"] < 0.90 or shares["valid"] < 1.0):
        sys.exit("Below what the docs promise: tool choice 0.90, schema-valid arguments 1.0.")


if __name__ == "__main__":
    main()
