"""How often a search among 500 tools finds the right one, and how many tokens it saves. `make search-eval` runs it.

The tools are the first 500 of BFCL's Python functions with names of their own, the queries are the questions that are
answered by one of them, word for word as a user wrote them: harder than the few words a model would search with.
"""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from live.corpus import normal, questions
from toolmason import Toolbox, ToolDefinition
from toolmason.build.check.provider_limits import estimate_tokens
from toolmason.chat.search import Search, ToolSearch
from toolmason.models.lexical.index import ToolIndex

SIZE, RANKS = 500, (1, 3, 5, 8)
KINDS = ("simple_python", "multiple", "parallel", "parallel_multiple")


def corpus():
    """Return the tools, and (query, name) for each question that one of them answers."""
    tools, asked = {}, []
    for question in (q for q in questions() if q["kind"] in KINDS):
        for function in question["function"]:
            schema = {"type": "object", **normal(function["parameters"])}
            if len(tools) < SIZE:
                tools.setdefault(function["name"], ToolDefinition(function["name"], function["description"], schema))
        wanted = {name for call in question["calls"] for name in call}
        if len(wanted) == 1 and question["kind"] in KINDS[:2]:
            asked.append((question["question"][0][-1]["content"], wanted.pop()))
    return list(tools.values()), [(text, name) for text, name in asked if name in tools]


def main():
    tools, asked = corpus()
    began = time.perf_counter()
    index = ToolIndex(tools)
    built = time.perf_counter() - began
    began = time.perf_counter()
    found = [([tool.name for tool in index.find(text, max(RANKS))], name) for text, name in asked]
    each = (time.perf_counter() - began) / len(asked)
    recall = {k: sum(name in names[:k] for names, name in found) / len(found) for k in RANKS}
    by_name = {tool.name: estimate_tokens(tool) for tool in tools}
    whole = sum(by_name.values())
    search = estimate_tokens(ToolSearch(Search(), Toolbox().tools).tool.definition)
    after = [search + sum(by_name[name] for name in names) for names, _ in found]
    print(f"{len(tools)} tools, {len(asked)} queries")
    print("  ".join(f"recall@{k} {share:.3f}" for k, share in recall.items()))
    print(f"tokens: {whole} whole, {search} before a search, {statistics.mean(after):.0f} with 8 found")
    print(f"index built in {built * 1000:.0f} ms, a search takes {each * 1000:.2f} ms")
    print(json.dumps({"tools": len(tools), "queries": len(asked), "recall": recall, "tokens": whole}))
    if len(tools) != SIZE or recall[8] < 0.9:
        sys.exit("Below what the docs promise: recall@8 of 0.9 among 500 tools.")


if __name__ == "__main__":
    main()
