"""Products of matrices of 8-bit and 4-bit floats with scales."""

import enum

from mica import _C

__all__ = ["ScalingType", "SwizzleType", "scaled_mm"]


class ScalingType(enum.IntEnum):
    """What a scale belongs to: the tensor, a row of it, or a block."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.IntEnum):
    """In which order the scales of small blocks lie in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _listed(value):
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _numbers(values):
    return [int(value) for value in _listed(values)]


def scaled_mm(
    mat_a,
    mat_b,
    scale_a,
    scale_recipe_a,
    scale_b,
    scale_recipe_b,
    swizzle_a=None,
    swizzle_b=None,
    bias=None,
    output_dtype=_C.bfloat16,
    contraction_dim=(),
    use_fast_accum=False,
):
    """The product of two matrices of 8-bit or 4-bit floats, each multiplied by its scales.

    Args:
        scale_a, scale_b: the scales. Those of tensors, rows and blocks of 128 are float32. MXFP8 and MXFP4 have blocks of 32
            numbers and float8_e8m0fnu; NVFP4 has blocks of 16 and float8_e4m3fn, and may have a float32 of the matrix besides.
        scale_recipe_a, scale_recipe_b: what a scale belongs to. Blocks of 128 run on CUDA alone, the others everywhere.
        swizzle_a, swizzle_b: the order of the scales of blocks of 16 and 32 in memory: row by row, or in tiles.
        bias: a vector that is added to each row.
        output_dtype: the dtype of the result; None is that of the first matrix.
        contraction_dim: the dimensions that are summed over.
        use_fast_accum: on a GPU, sums of fewer bits, which take less time.
    """
    return _C._scaled_mm_v2(
        mat_a,
        mat_b,
        _listed(scale_a),
        _numbers(scale_recipe_a),
        _numbers(swizzle_a),
        _listed(scale_b),
        _numbers(scale_recipe_b),
        _numbers(swizzle_b),
        bias,
        output_dtype,
        contraction_dim,
        use_fast_accum,
    )
