#!/usr/bin/env python3
"""Write a GGUF of a published model's shape with random weights, for measuring a peer beside `sluice synth`.

    make_gguf.py OUTPUT.gguf [--family gemma4|qwen36] [--layers N] [--seed N]

Matrices are Q4_0: 4-bit codes in blocks of 32 with one float16 scale, 4.5 bits per weight, as many bytes as MLX's
4-bit groups of 64 with bfloat16 scale and bias. The router is float32, as converters leave it (there it is 8-bit, a
difference of 1 MB a layer). Vectors are float32. There is no tokenizer: llama-bench needs none.

Needs the packages gguf and numpy.
"""
import argparse
import sys

import gguf
import numpy as np

BLOCK_WEIGHTS, BLOCK_BYTES = 32, 18
CHUNK_BLOCKS = 1 << 20


class Gemma4:
    """Gemma 4 26B-A4B."""
    arch, layers = "gemma4", 30
    router_gain = 2816 ** 0.5  # its input is scaled down by the square root of the row length
    hidden, dense, expert, experts, top_k, vocab = 2816, 2112, 704, 128, 8, 262144
    heads, kv_sliding, kv_full, head_sliding, head_full = 16, 8, 2, 256, 512

    def sliding(self, layers):
        return [(i + 1) % 6 != 0 for i in range(layers)]

    def tensors(self, layers):
        """(name, shape with the row length last, quantized?) in file order."""
        yield "token_embd.weight", (self.vocab, self.hidden), True
        yield "output_norm.weight", (self.hidden,), False
        yield "rope_freqs.weight", (self.head_full // 2,), False
        for i, sliding in enumerate(self.sliding(layers)):
            head = self.head_sliding if sliding else self.head_full
            kv = (self.kv_sliding if sliding else self.kv_full) * head
            block = f"blk.{i}."
            matrices = [("attn_q", (self.heads * head, self.hidden)), ("attn_k", (kv, self.hidden)),
                        ("attn_output", (self.hidden, self.heads * head)), ("ffn_gate", (self.dense, self.hidden)),
                        ("ffn_up", (self.dense, self.hidden)), ("ffn_down", (self.hidden, self.dense)),
                        ("ffn_gate_exps", (self.experts, self.expert, self.hidden)),
                        ("ffn_up_exps", (self.experts, self.expert, self.hidden)),
                        ("ffn_down_exps", (self.experts, self.hidden, self.expert))]
            if sliding:
                matrices.insert(2, ("attn_v", (kv, self.hidden)))
            for name, shape in matrices:
                yield f"{block}{name}.weight", shape, True
            yield f"{block}ffn_gate_inp.weight", (self.experts, self.hidden), False
            yield f"{block}ffn_gate_inp.scale", (self.hidden,), False
            yield f"{block}ffn_down_exps.scale", (self.experts,), False
            yield f"{block}layer_output_scale.weight", (1,), False
            for name, size in (("attn_q_norm", head), ("attn_k_norm", head)):
                yield f"{block}{name}.weight", (size,), False
            for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_ffw_norm_1",
                         "post_ffw_norm_2", "pre_ffw_norm_2"):
                yield f"{block}{name}.weight", (self.hidden,), False

    def metadata(self, layers):
        """Keys below the architecture's name, with values of the type that the file shall have."""
        sliding = self.sliding(layers)
        return {"context_length": 262144, "embedding_length": self.hidden, "block_count": layers,
                "feed_forward_length": self.dense, "attention.head_count": self.heads,
                "attention.key_length": self.head_full, "attention.value_length": self.head_full,
                "attention.key_length_swa": self.head_sliding, "attention.value_length_swa": self.head_sliding,
                "attention.sliding_window": 1024, "attention.shared_kv_layers": 0,
                "rope.dimension_count": self.head_full, "rope.dimension_count_swa": self.head_sliding,
                "expert_count": self.experts, "expert_used_count": self.top_k,
                "expert_feed_forward_length": self.expert, "embedding_length_per_layer_input": 0,
                "vocab_size": self.vocab, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
                "rope.freq_base_swa": 1e4, "final_logit_softcapping": 30.0,
                "attention.head_count_kv": [self.kv_sliding if s else self.kv_full for s in sliding],
                "attention.sliding_window_pattern": sliding}


class Qwen36:
    """Qwen 3.6 35B-A3B."""
    arch, layers = "qwen35moe", 40
    router_gain = 1.0
    hidden, expert, experts, top_k, vocab = 2048, 512, 256, 8, 248320
    heads, kv_heads, head = 16, 2, 256
    key_heads, value_heads, state, taps, interval = 16, 32, 128, 4, 4

    def tensors(self, layers):
        """(name, shape with the row length last, quantized?) in file order."""
        h, value = self.hidden, self.value_heads * self.state
        channels = 2 * self.key_heads * self.state + value
        yield "token_embd.weight", (self.vocab, h), True
        yield "output.weight", (self.vocab, h), True
        yield "output_norm.weight", (h,), False
        mixers = {
            True: [("attn_q.weight", (2 * self.heads * self.head, h), True),
                   ("attn_k.weight", (self.kv_heads * self.head, h), True),
                   ("attn_v.weight", (self.kv_heads * self.head, h), True),
                   ("attn_output.weight", (h, self.heads * self.head), True),
                   ("attn_q_norm.weight", (self.head,), False), ("attn_k_norm.weight", (self.head,), False)],
            False: [("attn_qkv.weight", (channels, h), True), ("attn_gate.weight", (value, h), True),
                    ("ssm_alpha.weight", (self.value_heads, h), True),
                    ("ssm_beta.weight", (self.value_heads, h), True), ("ssm_out.weight", (h, value), True),
                    ("ssm_conv1d.weight", (channels, self.taps), False), ("ssm_dt.bias", (self.value_heads,), False),
                    ("ssm_a", (self.value_heads,), False), ("ssm_norm.weight", (self.state,), False)]}
        rest = [("attn_norm.weight", (h,), False), ("post_attention_norm.weight", (h,), False),
                ("ffn_gate_inp.weight", (self.experts, h), False), ("ffn_gate_inp_shexp.weight", (h,), False),
                ("ffn_gate_shexp.weight", (self.expert, h), True), ("ffn_up_shexp.weight", (self.expert, h), True),
                ("ffn_down_shexp.weight", (h, self.expert), True),
                ("ffn_gate_exps.weight", (self.experts, self.expert, h), True),
                ("ffn_up_exps.weight", (self.experts, self.expert, h), True),
                ("ffn_down_exps.weight", (self.experts, h, self.expert), True)]
        for i in range(layers):
            for name, shape, quantized in mixers[(i + 1) % self.interval == 0] + rest:
                yield f"blk.{i}.{name}", shape, quantized

    def metadata(self, layers):
        """Keys below the architecture's name, with values of the type that the file shall have."""
        return {"context_length": 262144, "embedding_length": self.hidden, "block_count": layers,
                "attention.head_count": self.heads, "attention.head_count_kv": self.kv_heads,
                "attention.key_length": self.head, "attention.value_length": self.head,
                "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e7, "rope.dimension_count": 64,
                "rope.dimension_sections": [11, 11, 10, 0], "expert_count": self.experts,
                "expert_used_count": self.top_k, "expert_feed_forward_length": self.expert,
                "expert_shared_feed_forward_length": self.expert, "full_attention_interval": self.interval,
                "ssm.conv_kernel": self.taps, "ssm.state_size": self.state, "ssm.group_count": self.key_heads,
                "ssm.time_step_rank": self.value_heads, "ssm.inner_size": self.value_heads * self.state,
                "vocab_size": self.vocab}


FAMILIES = {"gemma4": Gemma4, "qwen36": Qwen36}


def write_metadata(writer, family, layers):
    for key, value in family.metadata(layers).items():
        add = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}[type(value)]
        add(f"{family.arch}.{key}", value)
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


def plain(rng, router, name, shape):
    if name == "rope_freqs.weight":  # a quarter of the pairs rotates
        values = np.full(shape, 1e30, dtype=np.float32)
        values[: shape[0] // 4] = 1
        return values
    if name.endswith("ssm_a"):  # minus the rate of decay
        return -np.exp(rng.uniform(-3, 1, shape)).astype(np.float32)
    if "ssm_conv1d" in name:
        return rng.uniform(-0.5, 0.5, shape).astype(np.float32)
    if "ffn_gate_inp" in name and name.endswith("weight"):
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(router * shape[-1] ** -0.5)
    return (1 + 0.1 * (2 * rng.random(shape, dtype=np.float32) - 1)).astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("output")
    parser.add_argument("--family", choices=sorted(FAMILIES), default="gemma4")
    parser.add_argument("--layers", type=int, help="default: as many as the published model has")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    family = FAMILIES[args.family]()
    layers = args.layers or family.layers
    writer = gguf.GGUFWriter(args.output, family.arch)
    write_metadata(writer, family, layers)
    listed = list(family.tensors(layers))
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
            out.write(plain(rng, family.router_gain, name, shape).tobytes())
        writer.write_padding(out, out.tell())
    print(f"{args.output}: {len(listed)} tensors, {out.tell():,} bytes", file=sys.stderr)
    writer.close()


if __name__ == "__main__":
    main()
