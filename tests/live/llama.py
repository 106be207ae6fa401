"""A real server of a model with random weights: `python llama.py FILE` writes the model, serves it and says where.

It runs with `xllamacpp` and `gguf`, which `make test-providers` puts beside the environment. What the model says is
noise; that its tokens, streams and grammars are real is the point.
"""

import sys

import gguf
import numpy as np
import xllamacpp

WIDTH, HEADS, INNER = 32, 2, 64
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write(path):
    """Write a model of one layer over single bytes."""
    chance = np.random.default_rng(0)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(2048)
    out.add_embedding_length(WIDTH)
    out.add_block_count(1)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("llama")
    out.add_token_list([token.encode() for token in tokens])
    out.add_token_scores([0.0] * len(tokens))
    out.add_token_types([2, 3, 3, *[6] * 256])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    out.add_chat_template(TEMPLATE)
    shapes = {"token_embd": (len(tokens), WIDTH), "output": (len(tokens), WIDTH)}
    shapes |= {f"blk.0.attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (INNER, WIDTH), "blk.0.ffn_up": (INNER, WIDTH), "blk.0.ffn_down": (WIDTH, INNER)}
    for name, shape in shapes.items():
        out.add_tensor(f"{name}.weight", (chance.standard_normal(shape) * 0.05).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        out.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def serve(path):
    """Serve the model until standard input ends."""
    settings = xllamacpp.CommonParams()
    settings.model.path = path
    settings.n_ctx = 8192
    settings.cpuparams.n_threads = 1
    settings.use_jinja = True
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)  # noqa: T201 - the test reads it
    sys.stdin.read()


if __name__ == "__main__":
    write(sys.argv[1])
    serve(sys.argv[1])
