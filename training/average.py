"""Average the adapters of two runs, and write one of the same rank.

Usage: python training/average.py FIRST.gguf SECOND.gguf OUT.gguf

The sum of two low-rank additions has twice their rank; the largest parts of its singular value decomposition are kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

EIGHT_BITS = gguf.GGMLQuantizationType.Q8_0


def read_adapter(path: Path) -> tuple[dict[str, np.ndarray], float]:
    """Return the tensors of an adapter, and its alpha."""
    reader = gguf.GGUFReader(path)
    tensors = {one.name: dequantize(one.data, one.tensor_type).astype(np.float32) for one in reader.tensors}
    return tensors, reader.fields["adapter.lora.alpha"].contents()


def average(a: list[np.ndarray], b: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the two thin matrices whose product is nearest to the mean of the products of `b` and `a`."""
    rank = len(a[0])
    high, high_rest = np.linalg.qr(np.concatenate(b, 1) / len(b))
    low, low_rest = np.linalg.qr(np.concatenate(a).T)
    left, sizes, right = np.linalg.svd(high_rest @ low_rest.T)
    roots = np.sqrt(sizes[:rank])
    return (roots[:, None] * right[:rank]) @ low.T, (high @ left[:, :rank]) * roots


def main() -> None:
    *paths, out = map(Path, sys.argv[1:])
    (first, alpha), (second, _) = map(read_adapter, paths)
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for name in first:
        if name.endswith("lora_a"):
            other = name.removesuffix("a") + "b"
            a, b = average([first[name], second[name]], [first[other], second[other]])
            for key, weight in ((name, a), (other, b)):
                packed = quantize(np.ascontiguousarray(weight, np.float32), EIGHT_BITS)
                writer.add_tensor(key, packed, raw_dtype=EIGHT_BITS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
