"""Writes files/blocks.gguf with the package gguf: weights of every type that is read, and what they stand for.

    python tests/recorded/record_gguf.py           any Python with the packages gguf and numpy

`NAME` is a weight, `NAME.expected` what gguf.quants.dequantize says it stands for, in float32.
"""

from pathlib import Path

import gguf
import numpy as np

ROWS, COLUMNS = 5, 512
TYPES = gguf.GGMLQuantizationType


def random_blocks(rng, kind):
    """gguf has no quantizer for these types: any bytes are blocks, once their scales are numbers."""
    numbers, nbytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS, COLUMNS // numbers, nbytes), dtype=np.uint8)
    for first in (0, 2) if kind == TYPES.Q4_K else (208,):
        scales = (rng.random((ROWS, COLUMNS // numbers, 1), np.float32) * 0.01).astype(np.float16)
        blocks[..., first : first + 2] = scales.view(np.uint8)
    return blocks.reshape(ROWS, -1)


def main():
    rng = np.random.default_rng(0)
    path = Path(__file__).parent / "files" / "blocks.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["<s>", "ä", "word"])
    writer.add_array("general.some_numbers", [1, 2, 3])
    weight = rng.standard_normal((ROWS, COLUMNS), np.float32)
    for kind in (TYPES.Q4_0, TYPES.Q8_0, TYPES.Q4_K, TYPES.Q6_K):
        has_quantizer = kind in (TYPES.Q4_0, TYPES.Q8_0)
        blocks = gguf.quants.quantize(weight, kind) if has_quantizer else random_blocks(rng, kind)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        writer.add_tensor(kind.name + ".expected", gguf.quants.dequantize(blocks, kind))
    for kind, dtype in ((TYPES.F16, np.float16), (TYPES.F32, np.float32)):
        plain = weight[:2, :3].astype(dtype)
        writer.add_tensor(kind.name, plain)
        writer.add_tensor(kind.name + ".expected", plain.astype(np.float32))
    halves = gguf.quants.quantize(weight[:2, :4], TYPES.BF16)
    writer.add_tensor("BF16", halves, raw_dtype=TYPES.BF16)
    writer.add_tensor("BF16.expected", gguf.quants.dequantize(halves, TYPES.BF16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
