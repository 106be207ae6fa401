"""Train a LoRA adapter for SmolLM2-135M-Instruct on one GPU, and write it as GGUF.

Usage: python training/train.py DATA OUT [--minutes 8] [--resume FILE] [--total-minutes 16]

`DATA` holds the output of `make_data.py` and the GGUF file of the base model (`model.gguf`). A run that stops at its
time writes `state.pt`; pass it as `--resume` to go on. The last run writes `adapter.gguf` and scores the held-out
questions of BFCL with plain greedy decoding.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

RANK = 32
SCALE = 1.0
PEAK_RATE = 2e-3
WARMUP_STEPS = 100
TOKENS_PER_STEP = 32_000
HEADS, KEY_HEADS, HEAD, LAYERS = 9, 3, 64, 30
LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""Names of the linear layers in GGUF, and in transformers."""
NOT_ADAPTED = ("attn_k",)
"""Queries are adapted, which changes the same products; so the file stays below 10 MB."""
EIGHT_BITS = gguf.GGMLQuantizationType.Q8_0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def to_half_rotary(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Order rows as transformers does: llama.cpp rotates neighbouring rows, transformers the two halves of a head."""
    return (
        weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def to_paired_rotary(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Order rows as llama.cpp does."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def load_base(path: Path) -> LlamaForCausalLM:
    """Return the base model of a GGUF file."""
    weights = {
        one.name: torch.tensor(dequantize(one.data, one.tensor_type).astype(np.float32))
        for one in gguf.GGUFReader(path).tensors
    }
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS, head_dim=HEAD, rms_norm_eps=1e-5, max_position_embeddings=8192, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    state = {
        "model.embed_tokens.weight": weights["token_embd.weight"],
        "lm_head.weight": weights["token_embd.weight"],
        "model.norm.weight": weights["output_norm.weight"],
    }
    for layer in range(LAYERS):
        for name, target in LAYER_NAMES.items():
            weight = weights[f"blk.{layer}.{name}.weight"]
            if name in ("attn_q", "attn_k"):
                weight = to_half_rotary(weight, HEADS if name == "attn_q" else KEY_HEADS)
            state[f"model.layers.{layer}.{target}.weight"] = weight
        state[f"model.layers.{layer}.input_layernorm.weight"] = weights[f"blk.{layer}.attn_norm.weight"]
        state[f"model.layers.{layer}.post_attention_layernorm.weight"] = weights[f"blk.{layer}.ffn_norm.weight"]
    print(model.load_state_dict(state, strict=False), flush=True)
    return model.requires_grad_(False).to(DEVICE, torch.bfloat16)


class Adapted(torch.nn.Module):
    """Low-rank additions to the weights of one kind of linear layer, in all layers of the model."""

    def __init__(self, bases: list[torch.nn.Parameter]) -> None:
        super().__init__()
        self.bases = bases
        self.whole = torch.stack([base.data.float() for base in bases])
        outputs, inputs = bases[0].shape
        self.a = torch.nn.Parameter(torch.randn(LAYERS, RANK, inputs, device=DEVICE) / math.sqrt(inputs))
        self.b = torch.nn.Parameter(torch.zeros(LAYERS, outputs, RANK, device=DEVICE))

    def merge(self) -> torch.Tensor:
        """Return the weights with their additions.

        One product with them, and with their gradient, is faster than thin products with `a` and `b` for every token.
        """
        return torch.baddbmm(self.whole, self.b, self.a, alpha=SCALE).to(torch.bfloat16)


def adapt(model: LlamaForCausalLM) -> dict[str, Adapted]:
    """Return the additions by the names of their layers in GGUF."""
    return {
        name: Adapted([layer.get_submodule(target).weight for layer in model.model.layers])
        for name, target in LAYER_NAMES.items()
        if name not in NOT_ADAPTED
    }


def write_adapter(adapters: dict[str, Adapted], path: Path) -> None:
    """Write the additions as a GGUF file of 8-bit weights."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", SCALE * RANK)
    for layer in range(LAYERS):
        for name, adapted in adapters.items():
            a, b = (one.detach()[layer].cpu() for one in (adapted.a, adapted.b))
            if name == "attn_q":
                b = to_paired_rotary(b, HEADS)
            for part, weight in (("a", a), ("b", b)):
                packed = quantize(np.ascontiguousarray(weight.numpy()), EIGHT_BITS)
                writer.add_tensor(f"blk.{layer}.{name}.weight.lora_{part}", packed, raw_dtype=EIGHT_BITS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Rows:
    """Tokenized examples."""

    def __init__(self, path: Path) -> None:
        with lzma.open(path) as stream:
            data = stream.read()
        count = int(np.frombuffer(data[:4], np.uint32)[0])
        self.lengths = np.frombuffer(data[4 : 4 + 4 * count], np.uint16).reshape(count, 2).astype(np.int64)
        self.tokens = np.frombuffer(data[4 + 4 * count :], np.uint16).astype(np.int64)
        self.ends = self.lengths.sum(1).cumsum()

    def batches(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the rows in random batches of rows of similar length."""
        sizes = self.lengths.sum(1)
        order = np.argsort(sizes + rng.uniform(0, 24, len(sizes)), kind="stable")
        batches, start = [], 0
        while start < len(order):
            # A batch is as wide as its longest row; the rows come in growing length.
            count = 1
            while start + count < len(order) and (count + 1) * sizes[order[start + count]] <= TOKENS_PER_STEP:
                count += 1
            batches.append(order[start : start + count])
            start += count
        rng.shuffle(batches)
        return batches

    def collate(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the token IDs, and the places of the tokens of the replies among all tokens."""
        width = int(self.lengths[rows].sum(1).max())
        ids = np.zeros((len(rows), width), np.int64)
        places = []
        for index, row in enumerate(rows):
            prompt, reply = self.lengths[row]
            ids[index, : prompt + reply] = self.tokens[self.ends[row] - prompt - reply : self.ends[row]]
            places.append(np.arange(index * width + prompt, index * width + prompt + reply))
        found = torch.from_numpy(ids), torch.from_numpy(np.concatenate(places))
        # From other memory, a copy to the GPU waits until the step before it has ended.
        return tuple(one.pin_memory() for one in found) if DEVICE == "cuda" else found


class Net:
    """Forward pass of the model with its additions."""

    def __init__(self, model: LlamaForCausalLM, adapters: dict[str, Adapted], *, is_compiled: bool) -> None:
        self.model = model
        self.adapters = adapters
        self.keys = torch.stack([layer.self_attn.k_proj.weight for layer in model.model.layers])
        self.run_layer = torch.compile(run_layer) if is_compiled else run_layer

    def compute_loss(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of the tokens at `places`."""
        body = self.model.model
        # The first layer needs no gradient; with one, all layers share a compilation.
        hidden = body.embed_tokens(ids).requires_grad_()
        cos, sin = (one[0] for one in body.rotary_emb(hidden, torch.arange(ids.shape[1], device=ids.device)[None]))
        for tensor, dimensions in ((hidden, (0, 1)), (cos, (0,)), (sin, (0,))):
            for dimension in dimensions:
                torch._dynamo.maybe_mark_dynamic(tensor, dimension)
        merged = {name: adapted.merge() for name, adapted in self.adapters.items()}
        stacks = (
            torch.cat((merged["attn_q"], self.keys, merged["attn_v"]), 1),
            merged["attn_output"],
            torch.cat((merged["ffn_gate"], merged["ffn_up"]), 1),
            merged["ffn_down"],
        )
        for layer, *weights in zip(body.layers, *(stack.unbind(0) for stack in stacks), strict=True):
            norms = (layer.input_layernorm.weight, layer.post_attention_layernorm.weight)
            hidden = self.run_layer(hidden, cos, sin, *norms, *weights)
        # Places and not a mask: a mask would make the CPU wait for the GPU.
        chosen = body.norm(hidden.flatten(0, 1).index_select(0, places - 1))
        logits = self.model.lm_head(chosen).float()
        return torch.nn.functional.cross_entropy(logits, ids.flatten().index_select(0, places))

    def fold(self) -> None:
        """Put the additions into the weights of the model."""
        for adapted in self.adapters.values():
            for base, whole in zip(adapted.bases, adapted.merge().detach(), strict=True):
                base.data.copy_(whole)


def run_layer(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, first_norm: torch.Tensor, second_norm: torch.Tensor,
    qkv: torch.Tensor, output: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Return the output of a layer. Rows are padded at the end, so causal attention keeps the padding from the text."""
    rows, width, _ = x.shape
    sizes = (HEADS * HEAD, KEY_HEADS * HEAD, KEY_HEADS * HEAD)
    queries, keys, values = (
        one.view(rows, width, -1, HEAD).transpose(1, 2) for one in (normalize(x, first_norm) @ qkv.T).split(sizes, -1)
    )
    queries, keys = rotate(queries, cos, sin), rotate(keys, cos, sin)
    keys, values = (one.repeat_interleave(HEADS // KEY_HEADS, 1) for one in (keys, values))
    mixed = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    x = x + mixed.transpose(1, 2).reshape(rows, width, HEADS * HEAD) @ output.T
    opened, passed = (normalize(x, second_norm) @ gate_up.T).chunk(2, -1)
    return x + (torch.nn.functional.silu(opened) * passed) @ down.T


def normalize(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


@torch.no_grad()
def complete(model: LlamaForCausalLM, tokenizer: Tokenizer, prompts: list[str], max_tokens: int = 140) -> list[str]:
    """Return greedy completions."""
    end = tokenizer.token_to_id("<|im_end|>")
    texts = []
    for start in range(0, len(prompts), 96):
        encoded = [tokenizer.encode(one, add_special_tokens=False).ids for one in prompts[start : start + 96]]
        width = max(map(len, encoded))
        ids = torch.full((len(encoded), width), end)
        mask = torch.zeros((len(encoded), width), dtype=torch.long)
        for index, one in enumerate(encoded):
            ids[index, width - len(one) :] = torch.tensor(one)
            mask[index, width - len(one) :] = 1
        rows = model.generate(
            input_ids=ids.to(DEVICE),
            attention_mask=mask.to(DEVICE),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=end,
        )
        texts += [tokenizer.decode([token for token in row[width:].tolist() if token != end]) for row in rows]
    return texts


def score(model: LlamaForCausalLM, tokenizer: Tokenizer, questions: list[dict]) -> dict[str, list[int]]:
    """Return cases, right tools and exact arguments by kind of question."""
    texts = complete(model, tokenizer, [one["prompt"] for one in questions])
    figures: dict[str, list[int]] = {}
    for question, text in zip(questions, texts, strict=True):
        row = figures.setdefault(question["kind"], [0, 0, 0])
        row[0] += 1
        call = re.match(r"call (\S+) (\{.*\})", text)
        if question["kind"] == "irrelevance":
            row[1] += call is None
        elif call is not None:
            ((name, truth),) = question["calls"][0].items()
            row[1] += call[1] == name
            try:
                arguments = json.loads(call[2])
            except ValueError:
                continue
            row[2] += call[1] == name and is_exact(arguments, truth)
    return figures


def is_exact(arguments: dict, truth: dict) -> bool:
    """Return True if every argument is accepted; strings are compared without case and punctuation."""

    def simplify(value: object) -> object:
        return re.sub(r"\W", "", value.lower()) if isinstance(value, str) else value

    return arguments.keys() <= truth.keys() and all(
        any(simplify(arguments[name]) == simplify(one) or isinstance(one, dict) for one in accepted)
        if name in arguments
        else "" in accepted
        for name, accepted in truth.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--total-minutes", type=float, default=16)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--no-score", action="store_true")
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many steps")
    parser.add_argument("--eager", action="store_true", help="do not compile the layers")
    given = parser.parse_args()
    torch.manual_seed(0)
    model = load_base(given.data / "model.gguf")
    tokenizer = Tokenizer.from_file(str(given.data / "tokenizer.json"))
    adapters = adapt(model)
    parameters = [one for adapted in adapters.values() for one in (adapted.a, adapted.b)]
    optimizer = torch.optim.AdamW(parameters, lr=PEAK_RATE, weight_decay=0.01, betas=(0.9, 0.98), fused=True)
    rows = Rows(given.data / "train.xz")
    step, epoch, spent, position = 0, 0, 0.0, 0
    if given.resume:
        saved = torch.load(given.resume, map_location=DEVICE)
        for parameter, value in zip(parameters, saved["parameters"], strict=True):
            parameter.data.copy_(value)
        optimizer.load_state_dict(saved["optimizer"])
        step, epoch, spent, position = saved["step"], saved["epoch"], saved["spent"], saved["position"]
    print(
        f"{len(rows.lengths)} rows, {len(rows.tokens) / 1e6:.1f} M tokens, {sum(p.numel() for p in parameters) / 1e6:.2f} M parameters",
        flush=True,
    )
    started, mean = time.time(), 0.0
    net = Net(model, adapters, is_compiled=not given.eager)
    batches, collator = rows.batches(np.random.default_rng(epoch)), ThreadPoolExecutor(1)
    upcoming = collator.submit(rows.collate, batches[position % len(batches)])
    while time.time() - started < given.minutes * 60 and step < given.steps:
        if position == len(batches):
            epoch, position = epoch + 1, 0
            batches = rows.batches(np.random.default_rng(epoch))
            upcoming = collator.submit(rows.collate, batches[0])
        ids, places = upcoming.result()
        upcoming = collator.submit(rows.collate, batches[(position + 1) % len(batches)])
        progress = min(1.0, (spent + time.time() - started) / (given.total_minutes * 60))
        rate = (
            PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = net.compute_loss(ids.to(DEVICE, non_blocking=True), places.to(DEVICE, non_blocking=True))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step, position = step + 1, position + 1
        if step % 100 == 0 or step < 4:
            mean = loss.item()
            print(
                f"step {step} epoch {epoch} {position}/{len(batches)} loss {mean:.4f} rate {rate:.5f} {time.time() - started:.0f} s",
                flush=True,
            )
    spent += time.time() - started
    given.out.mkdir(parents=True, exist_ok=True)
    torch.save(
        {
            "parameters": [p.data for p in parameters],
            "optimizer": optimizer.state_dict(),
            "step": step,
            "epoch": epoch,
            "spent": spent,
            "position": position,
        },
        given.out / "state.pt",
    )
    write_adapter(adapters, given.out / "adapter.gguf")
    if given.no_score or spent < 0.97 * given.total_minutes * 60:
        return
    net.fold()
    model.eval()
    print(score(model, tokenizer, json.loads((given.data / "held_out.json").read_text())), flush=True)


if __name__ == "__main__":
    main()
