#!/usr/bin/env python3
"""Write a GGUF of Gemma 4 26B-A4B's shape with random weights, for measuring a peer beside `sluice synth gemma4`.

    make_gguf.py OUTPUT.gguf [--layers N] [--seed N]

Matrices are Q4_0: 4-bit codes in blocks of 32 with one float16 scale, 4.5 bits per weight, as many bytes as MLX's
4-bit groups of 64 with bfloat16 scale and bias. The router is float32, as converters leave it (here it is 8-bit, a
difference of 32 MB in 1.4 GB of residents). Norms are float32. There is no tokenizer: llama-bench needs none.

Needs the packages gguf and numpy.
"""
import argparse
import sys

import gguf
import numpy as np

HIDDEN, DENSE, EXPERT, EXPERTS, TOP_K, VOCAB = 2816, 2112, 704, 128, 8, 262144
HEADS, KV_SLIDING, KV_FULL, HEAD_SLIDING, HEAD_FULL = 16, 8, 2, 256, 512
BLOCK_WEIGHTS, BLOCK_BYTES = 32, 18
CHUNK_BLOCKS = 1 << 20


def sliding_layers(layers):
    return [(i + 1) % 6 != 0 for i in range(layers)]


def tensors(layers):
    """(name, shape with the row length last, quantized?) in file order."""
    yield "token_embd.weight", (VOCAB, HIDDEN), True
    yield "output_norm.weight", (HIDDEN,), False
    yield "rope_freqs.weight", (HEAD_FULL // 2,), False
    for i, sliding in enumerate(sliding_layers(layers)):
        head = HEAD_SLIDING if sliding else HEAD_FULL
        kv = (KV_SLIDING if sliding else KV_FULL) * head
        block = f"blk.{i}."
        matrices = [("attn_q", (HEADS * head, HIDDEN)), ("attn_k", (kv, HIDDEN)), ("attn_output", (HIDDEN, HEADS * head)),
                    ("ffn_gate", (DENSE, HIDDEN)), ("ffn_up", (DENSE, HIDDEN)), ("ffn_down", (HIDDEN, DENSE)),
                    ("ffn_gate_exps", (EXPERTS, EXPERT, HIDDEN)), ("ffn_up_exps", (EXPERTS, EXPERT, HIDDEN)),
                    ("ffn_down_exps", (EXPERTS, HIDDEN, EXPERT))]
        if sliding:
            matrices.insert(2, ("attn_v", (kv, HIDDEN)))
        for name, shape in matrices:
            yield f"{block}{name}.weight", shape, True
        yield f"{block}ffn_gate_inp.weight", (EXPERTS, HIDDEN), False
        yield f"{block}ffn_gate_inp.scale", (HIDDEN,), False
        yield f"{block}ffn_down_exps.scale", (EXPERTS,), False
        yield f"{block}layer_output_scale.weight", (1,), False
        for name, size in (("attn_q_norm", head), ("attn_k_norm", head)):
            yield f"{block}{name}.weight", (size,), False
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_ffw_norm_1",
                     "post_ffw_norm_2", "pre_ffw_norm_2"):
            yield f"{block}{name}.weight", (HIDDEN,), False


def metadata(writer, layers):
    sliding = sliding_layers(layers)
    numbers = {"context_length": 262144, "embedding_length": HIDDEN, "block_count": layers, "feed_forward_length": DENSE,
               "attention.head_count": HEADS, "attention.key_length": HEAD_FULL, "attention.value_length": HEAD_FULL,
               "attention.key_length_swa": HEAD_SLIDING, "attention.value_length_swa": HEAD_SLIDING,
               "attention.sliding_window": 1024, "attention.shared_kv_layers": 0, "rope.dimension_count": HEAD_FULL,
               "rope.dimension_count_swa": HEAD_SLIDING, "expert_count": EXPERTS, "expert_used_count": TOP_K,
               "expert_feed_forward_length": EXPERT, "embedding_length_per_layer_input": 0, "vocab_size": VOCAB}
    for key, value in numbers.items():
        writer.add_uint32(f"gemma4.{key}", value)
    for key, value in {"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
                       "final_logit_softcapping": 30.0}.items():
        writer.add_float32(f"gemma4.{key}", value)
    writer.add_array("gemma4.attention.head_count_kv", [KV_SLIDING if s else KV_FULL for s in sliding])
    writer.add_array("gemma4.attention.sliding_window_pattern", sliding)
    writer.add_string("tokenizer.ggml.model", "no_vocab")


def q4_0(rng, weights, columns):
    """Blocks whose codes are uniform, and whose scale maps unit variance to unit variance."""
    scale = np.float16(1 / (4.61 * columns ** 0.5))
    left = weights // BLOCK_WEIGHTS
    while left:
        n = min(left, CHUNK_BLOCKS)
        blocks = np.frombuffer(rng.bytes(n * BLOCK_BYTES), dtype=np.uint8).reshape(n, BLOCK_BYTES).copy()
        blocks[:, :2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
        yield blocks
        left -= n


def plain(rng, name, shape):
    if name == "rope_freqs.weight":  # a quarter of the pairs rotates
        values = np.full(shape, 1e30, dtype=np.float32)
        values[: shape[0] // 4] = 1
        return values
    if len(shape) > 1:
        # The router's input is scaled down by the square root of the row length.
        return rng.standard_normal(shape, dtype=np.float32)
    return (1 + 0.1 * (2 * rng.random(shape, dtype=np.float32) - 1)).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("output")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    writer = gguf.GGUFWriter(args.output, "gemma4")
    metadata(writer, args.layers)
    listed = list(tensors(args.layers))
    for name, shape, quantized in listed:
        count = int(np.prod(shape))
        if quantized:
            stored = (*shape[:-1], shape[-1] // BLOCK_WEIGHTS * BLOCK_BYTES)
            writer.add_tensor_info(name, stored, np.dtype(np.uint8), count // BLOCK_WEIGHTS * BLOCK_BYTES,
                                   raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        else:
            writer.add_tensor_info(name, shape, np.dtype(np.float32), count * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    out = writer.fout[0]
    for name, shape, quantized in listed:
        writer.write_padding(out, out.tell())
        if quantized:
            for blocks in q4_0(rng, int(np.prod(shape)), shape[-1]):
                out.write(blocks.tobytes())
        else:
            out.write(plain(rng, name, shape).tobytes())
        writer.write_padding(out, out.tell())
    print(f"{args.output}: {len(listed)} tensors, {out.tell():,} bytes", file=sys.stderr)
    writer.close()


if __name__ == "__main__":
    main()
