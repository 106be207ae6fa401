"""The adapter of the local model, merged into its weights."""

import struct

import numpy as np
import pytest

from toolmason_local.merged import find_merged

SIDE = 32
F16, Q4_1, Q8_0 = 1, 3, 8
SETTING = struct.pack("<Q", 18) + b"adapter.lora.alpha" + struct.pack("<If", 6, 4.0)
LISTS = struct.pack("<Q", 4) + b"list" + struct.pack("<IIQ", 9, 8, 2) + (struct.pack("<Q", 1) + b"a") * 2


def write_gguf(path, tensors, settings=(SETTING, LISTS)):
    infos, data = b"", b""
    for name, shape, kind, raw in tensors:
        infos += struct.pack("<Q", len(name)) + name.encode()
        infos += struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(settings)) + b"".join(settings) + infos
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toolmason"


@pytest.fixture
def files(tmp_path):
    """Each weight of the model is 0.5 more than its number in the row; the adapter adds 2 * row * column."""
    quarters = bytes(low | low + 1 << 4 for low in range(15)) + b"\x0f"
    block = np.array([1.0, 0.5], np.float16).tobytes() + quarters
    norm = np.arange(SIDE, dtype=np.float32)
    weights = write_gguf(
        tmp_path / "small.gguf",
        [("norm", (SIDE,), 0, norm.tobytes()), ("layer.weight", (SIDE, SIDE), Q4_1, block * SIDE)],
    )
    column, row = np.linspace(0, 1, SIDE, dtype=np.float16), np.linspace(-1, 1, SIDE, dtype=np.float16)
    low = np.stack([column, column])
    adapter = write_gguf(
        tmp_path / "adapter.gguf",
        [
            ("layer.weight.lora_a", (SIDE, 2), F16, low.tobytes()),
            ("layer.weight.lora_b", (2, SIDE), F16, np.stack([row, row], axis=1).tobytes()),
        ],
    )
    base = np.array([*(byte & 15 for byte in quarters), *(byte >> 4 for byte in quarters)]) + 0.5
    return weights, adapter, base + 4 * np.outer(row.astype(float), column.astype(float))


def read_last_tensor(path):
    blocks = np.frombuffer(path.read_bytes()[-SIDE * 34 :], np.uint8).reshape(SIDE, 34)
    return blocks[:, 2:].view(np.int8) * blocks[:, :2].copy().view(np.float16).astype(float)


def test_the_weights_are_merged_once(cache, files):
    weights, adapter, wanted = files

    merged = find_merged(weights, adapter, lambda: False)
    written = merged.stat()

    assert merged.parent == cache
    assert np.abs(read_last_tensor(merged) - wanted).max() < 0.1
    assert np.arange(SIDE, dtype=np.float32).tobytes() in merged.read_bytes()
    assert find_merged(weights, adapter, lambda: False) == merged
    assert merged.stat().st_ino == written.st_ino


def test_an_adapter_may_have_8_bit_weights(cache, files):
    weights, adapter, _ = files
    scale, numbers = np.float16(0.25).tobytes(), np.arange(-16, 16, dtype=np.int8)
    rows = (scale + numbers.tobytes()) * SIDE
    write_gguf(
        adapter,
        [("layer.weight.lora_a", (SIDE, SIDE), Q8_0, rows), ("layer.weight.lora_b", (SIDE, SIDE), Q8_0, rows)],
    )
    quarters = bytes(low | low + 1 << 4 for low in range(15)) + b"\x0f"
    base = np.array([*(byte & 15 for byte in quarters), *(byte >> 4 for byte in quarters)]) + 0.5
    part = np.tile(numbers * 0.25, (SIDE, 1))

    merged = find_merged(weights, adapter, lambda: False)

    assert np.abs(read_last_tensor(merged) - (base + 4 / SIDE * part @ part)).max() < 0.1


def test_another_adapter_replaces_the_file(cache, files):
    weights, adapter, _ = files
    first = find_merged(weights, adapter, lambda: False)
    adapter.write_bytes(adapter.read_bytes() + b"more")

    second = find_merged(weights, adapter, lambda: False)

    assert list(cache.iterdir()) == [second]
    assert first != second


def test_a_cancelled_merge_leaves_nothing(cache, files):
    weights, adapter, _ = files

    assert find_merged(weights, adapter, lambda: True) is None
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("damage", ["folder", "cut", "alignment", "kind"])
def test_without_a_merged_file_the_adapter_is_used(damage, cache, files, tmp_path):
    weights, adapter, _ = files
    if damage == "folder":
        (tmp_path / "cache").write_text("not a folder")
    elif damage == "cut":
        adapter.write_bytes(adapter.read_bytes()[:60])
    elif damage == "alignment":
        odd = struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<II", 4, 64)
        write_gguf(weights, [("norm", (SIDE,), 0, bytes(4 * SIDE))], (odd,))
    else:
        write_gguf(weights, [("layer.weight", (SIDE, SIDE), 14, bytes(SIDE * SIDE))])

    assert find_merged(weights, adapter, lambda: False) is None
