"""Write the tokenizer and the tokenized training data.

Usage: python training/make_data.py OUT [SYNTHETIC]

`OUT` gets `tokenizer.json`, `train.xz` (lengths and token IDs), `held_out.json` (the prompts of the evaluation) and
`held_out_boxes.json` (for `make local-eval EVAL_FLAGS="--prompts FILE"`).
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from bfcl import BfclMaker, is_held_out, make_chat, make_definition
from box_examples import BoxMaker, split_boxes
from boxes import Box
from generate import Generator
from live.corpus import questions
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from toolmason_local.prompts import END, Turn, format_prompt
from toolmason_local.weights import find_weights

SEED = 7
MAX_TOKENS = 900
BOX_COPIES, BFCL_COPIES = 24, 32
"""Varied copies of each request."""
CONTROL = 3
"""Type of a token that has a meaning of its own, in a GGUF file."""


def make_tokenizer(weights: Path) -> Tokenizer:
    """Return the tokenizer that a GGUF file describes: BPE over bytes, with single digits."""
    fields = gguf.GGUFReader(weights).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


def main() -> None:
    out, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 260_000
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(find_weights(None))
    tokenizer.save(str(out / "tokenizer.json"))
    generator, bfcl = Generator(SEED), BfclMaker(SEED)
    examples = [generator.make_chain() if number % 16 == 0 else generator.make() for number in range(count)]
    own = len(examples)
    boxes = BoxMaker(SEED, generator.vary)
    examples += boxes.make_all(BOX_COPIES)
    boxed = len(examples) - own
    examples += bfcl.make_all(BFCL_COPIES)
    examples += make_chat(bfcl.rng, bfcl.pool) * 4
    print(
        f"{own} from templates, {boxed} from {len(boxes.boxes)} boxes, "
        f"{len(examples) - own - boxed} from BFCL ({len(bfcl.items)} questions)"
    )
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    for part in _parts(examples):
        prompts = _encode(tokenizer, [format_prompt(one.tools, one.turns) for one in part])
        replies = _encode(tokenizer, [one.reply + END for one in part])
        rows += [(p, r) for p, r in zip(prompts, replies, strict=True) if len(p) + len(r) <= MAX_TOKENS]
    with lzma.open(out / "train.xz", "wb", preset=9) as stream:
        # The number of rows, the lengths of prompts and replies, and then all tokens. The rows are not shuffled, because
        # similar ones compress better side by side; `train.py` draws them at random.
        stream.write(np.array([len(rows)], np.uint32).tobytes())
        stream.write(np.array([(len(p), len(r)) for p, r in rows], np.uint16).tobytes())
        for p, r in rows:
            stream.write(p.tobytes() + r.tobytes())
    lengths = [len(p) + len(r) for p, r in rows]
    print(
        f"{len(rows)} rows, {sum(lengths) / 1e6:.1f} M tokens, mean {np.mean(lengths):.0f}, reply {np.mean([len(r) for _, r in rows]):.0f}"
    )
    held = [one for one in questions() if is_held_out(one) or one["kind"] == "irrelevance"]
    json.dump(
        [
            {
                "kind": one["kind"],
                "calls": one["calls"],
                "prompt": format_prompt(
                    [make_definition(f) for f in one["function"]], [Turn("user", one["question"][0][-1]["content"])]
                ),
            }
            for one in held
        ],
        (out / "held_out.json").open("w"),
    )
    json.dump([_to_prompts(box) for box in split_boxes()[1]], (out / "held_out_boxes.json").open("w"), indent=1)


def _to_prompts(box: Box) -> dict[str, Any]:
    """Return a box in the form of `tests/data/newcomer_prompts.json`, without the follow-ups."""
    return {
        "name": box.name,
        "tools": [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in box.tools
        ],
        "cases": [
            {
                "prompt": case.text,
                "calls": [
                    {"name": name, "arguments": {key: [value] for key, value in arguments.items()}}
                    for name, arguments in case.calls
                ],
            }
            for case in box.cases
            if case.before is None and (case.calls or case.intent == "none")
        ],
    }


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    # Arrays at once: the encodings of all examples need 20 GB.
    return [np.array(one.ids, np.uint16) for one in tokenizer.encode_batch(texts, add_special_tokens=False)]


def _parts(examples: list, size: int = 20_000) -> list:
    return [examples[start : start + size] for start in range(0, len(examples), size)]


if __name__ == "__main__":
    main()
