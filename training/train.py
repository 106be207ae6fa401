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
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

RANK = 16
SCALE = 2.0
PEAK_RATE = 2e-3
WARMUP_STEPS = 100
TOKENS_PER_STEP = 32_000
HEADS, KEY_HEADS, LAYERS = 9, 3, 30
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
        num_key_value_heads=KEY_HEADS, head_dim=64, rms_norm_eps=1e-5, max_position_embeddings=8192, tie_word_embeddings=True,
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
    """Linear layer with a low-rank addition."""

    def __init__(self, base: torch.nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.a = torch.nn.Parameter(torch.randn(RANK, base.in_features, device=DEVICE) / math.sqrt(base.in_features))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, RANK, device=DEVICE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + SCALE * ((x @ self.a.T.to(x.dtype)) @ self.b.T.to(x.dtype))


def adapt(model: LlamaForCausalLM) -> dict[str, Adapted]:
    """Replace every linear layer by an adapted one, and return them by their GGUF names."""
    adapters = {}
    for layer in range(LAYERS):
        for name, target in LAYER_NAMES.items():
            block, attribute = target.split(".")
            parent = model.model.layers[layer].get_submodule(block)
            adapters[f"blk.{layer}.{name}"] = adapted = Adapted(getattr(parent, attribute))
            setattr(parent, attribute, adapted)
    return adapters


def read_adapter(adapters: dict[str, Adapted], path: Path) -> None:
    """Set the adapters to those of a GGUF file."""
    tensors = {one.name: torch.tensor(np.array(one.data)).float() for one in gguf.GGUFReader(path).tensors}
    for name, adapted in adapters.items():
        b = tensors[f"{name}.weight.lora_b"]
        if name.endswith(("attn_q", "attn_k")):
            b = to_half_rotary(b, HEADS if name.endswith("attn_q") else KEY_HEADS)
        adapted.a.data.copy_(tensors[f"{name}.weight.lora_a"])
        adapted.b.data.copy_(b)


def write_adapter(adapters: dict[str, Adapted], path: Path) -> None:
    """Write the adapters as a GGUF file."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", SCALE * RANK)
    for name, adapted in adapters.items():
        b = adapted.b.detach().float().cpu()
        if name.endswith(("attn_q", "attn_k")):
            b = to_paired_rotary(b, HEADS if name.endswith("attn_q") else KEY_HEADS)
        writer.add_tensor(f"{name}.weight.lora_a", adapted.a.detach().float().cpu().numpy().astype(np.float16))
        writer.add_tensor(f"{name}.weight.lora_b", np.ascontiguousarray(b.numpy()).astype(np.float16))
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
        return torch.from_numpy(ids), torch.from_numpy(np.concatenate(places))


def compute_loss(model: LlamaForCausalLM, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of the tokens at `places`."""
    # Rows are padded at the end, so that causal attention alone keeps the padding from the text.
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    # Places and not a mask: a mask would make the CPU wait for the GPU.
    logits = model.lm_head(hidden.flatten(0, 1).index_select(0, places - 1)).float()
    return torch.nn.functional.cross_entropy(logits, ids.flatten().index_select(0, places))


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
    parser.add_argument("--start", type=Path, help="begin with this adapter, without the state of its optimizer")
    parser.add_argument("--spent", type=float, default=0.0, help="minutes that the training of --start took")
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
    step, epoch, spent, position = 0, 0, 60 * given.spent, 0
    if given.start:
        read_adapter(adapters, given.start)
        epoch = 1  # other batches than those that it has seen
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
    model.train()
    if not given.eager:
        for layer in model.model.layers:
            layer.compile(dynamic=True)  # the layers share one compilation
    batches = rows.batches(np.random.default_rng(epoch))
    while time.time() - started < given.minutes * 60 and step < given.steps:
        if position == len(batches):
            epoch, position = epoch + 1, 0
            batches = rows.batches(np.random.default_rng(epoch))
        ids, places = rows.collate(batches[position])
        progress = min(1.0, (spent + time.time() - started) / (given.total_minutes * 60))
        rate = (
            PEAK_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = compute_loss(model, ids.to(DEVICE, non_blocking=True), places.to(DEVICE, non_blocking=True))
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
        given.data / "state.pt",
    )
    write_adapter(adapters, given.out / "adapter.gguf")
    if given.no_score or spent < 0.97 * given.total_minutes * 60:
        return
    model.eval()
    for layer in model.model.layers:
        layer._compiled_call_impl = None  # generation has other shapes for each token
    print(score(model, tokenizer, json.loads((given.data / "held_out.json").read_text())), flush=True)


if __name__ == "__main__":
    main()
