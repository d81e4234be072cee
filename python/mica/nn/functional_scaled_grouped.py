"""Products of groups of matrices of 8-bit and 4-bit floats with scales, for mixtures of experts."""

from mica import _C
from mica.nn.functional_scaled import ScalingType, SwizzleType, _listed, _numbers

__all__ = ["scaled_grouped_mm"]

_BLOCKS = {ScalingType.BlockWise1x16: 16, ScalingType.BlockWise1x32: 32}


def _round_up(size, multiple):
    return -(-size // multiple) * multiple


def _count_scales(outer, inner, block, swizzle):
    """How many scales a group's blocks have: swizzled ones fill tiles of 128 rows and 4 scales."""
    blocks = -(-inner // block)
    return outer * blocks if swizzle == SwizzleType.NO_SWIZZLE else _round_up(outer, 128) * _round_up(blocks, 4)


def _require(condition, message):
    if not condition:
        raise RuntimeError(message)


def _check(mat_a, mat_b, offs, bias):
    _require(
        mat_a.dim() in (2, 3) and mat_b.dim() in (2, 3),
        f"Multiplicands must be 2D or 3D but got mat_a.dim()={mat_a.dim()} and mat_b.dim()={mat_b.dim()}",
    )
    _require(mat_a.shape[-1] == mat_b.shape[-2], "contraction dimension of mat_a and mat_b must match")
    if mat_a.dim() == 2 or mat_b.dim() == 2:
        dims = f"{mat_a.dim()}D/{mat_b.dim()}D"
        _require(offs is not None, f"Offsets tensor not provided, but is needed for {dims} multiplicand layouts.")
        _require(offs.dim() == 1, f"Offsets tensor must be 1D, but got offs.dim()={offs.dim()}.")
        _require(offs.dtype == _C.int32, f"Offsets tensor must be integer (int32) tensor, but got {offs.dtype}.")
    else:
        _require(offs is None, "Offsets tensor provided, but is not needed for 3D/3D multiplicand layouts.")
        _require(mat_a.shape[0] == mat_b.shape[0], f"There are {mat_a.shape[0]} and {mat_b.shape[0]} groups.")
    _require(bias is None, "Bias tensor provided, but it is not supported yet.")


class _Scales:
    """The scales of one operand, handed out group by group."""

    def __init__(self, name, scales, recipes, swizzles, groups, is_first):
        self.name, self.groups, self.is_first = name, groups, is_first
        self.recipes = [ScalingType(r) for r in recipes]
        self.swizzle = SwizzleType(swizzles[0]) if swizzles else SwizzleType.NO_SWIZZLE
        self.swizzles = [int(self.swizzle)]
        if not self.recipes or len(self.recipes) != len(scales):
            raise ValueError(f"{name}: {len(scales)} scales came with {len(self.recipes)} recipes")
        self.scale, *self.whole = scales
        self.block = _BLOCKS.get(self.recipes[0])
        if not self.block and self.recipes != [ScalingType.RowWise]:
            raise ValueError(f"{name}: a group is scaled by rows, or by blocks of 16 or 32 numbers")
        if len(self.whole) > 1 or any(w.numel() != groups for w in self.whole):
            raise ValueError(f"{name}: expected one scale for each of the {groups} matrices")
        self.used = 0

    def of_rows(self, matrix, start, end, along_sum):
        """A float32 scale for each row of the first matrix, or for each column of the second."""
        outer = matrix.shape[-2] if self.is_first else matrix.shape[-1]
        if matrix.dim() == 3:
            _require(
                self.scale.shape == (self.groups, outer),
                f"Expected {self.name} to have shape {(self.groups, outer)}, got {tuple(self.scale.shape)}.",
            )
            return self.scale
        count = outer * (self.groups if along_sum else 1)
        _require(self.scale.dim() == 1, f"Expected {self.name} to be 1D tensor, but got {self.scale.dim()}D tensor.")
        _require(
            self.scale.numel() == count,
            f"Expected {self.name} to have {count} elements, got {self.scale.numel()} elements.",
        )
        return self.scale.reshape(self.groups, outer) if along_sum else self.scale[start:end][None]

    def group(self, i, matrix, part, start, end, along_sum):
        """The list of scales that belong to group `i`, whose part of the matrix is `part`."""
        if not self.block:
            rows = self.of_rows(matrix, start, end, along_sum)
            one = rows[i if matrix.dim() == 3 or along_sum else 0]
            return [one.reshape(-1, 1) if self.is_first else one.reshape(1, -1)]
        outer, inner = part.shape if self.is_first else (part.shape[1], part.shape[0])
        inner *= 2 if part.dtype == _C.float4_e2m1fn_x2 else 1
        count = _count_scales(outer, inner, self.block, self.swizzle)
        flat = self.scale[i].flatten() if matrix.dim() == 3 else self.scale.flatten()[self.used : self.used + count]
        self.used += count
        return [flat, *(w.flatten()[i] for w in self.whole)]


def scaled_grouped_mm(
    mat_a,
    mat_b,
    scale_a,
    scale_recipe_a,
    scale_b,
    scale_recipe_b,
    swizzle_a=None,
    swizzle_b=None,
    bias=None,
    offs=None,
    output_dtype=_C.bfloat16,
    contraction_dim=(),
    use_fast_accum=False,
):
    """Products of the groups of two matrices with scales; `offs` says where each group of a 2-d one ends.

    A 2-d first matrix is split by rows, a 2-d second one by columns, two 2-d ones along what is summed over. Scales are by rows
    (float32), or those of the blocks of MXFP8, MXFP4 and NVFP4, where each group of a 2-d matrix has its tiles behind each other.
    """
    _check(mat_a, mat_b, offs, bias)
    if contraction_dim and [d % m.dim() for d, m in zip(contraction_dim, (mat_a, mat_b), strict=True)] != [
        mat_a.dim() - 1,
        mat_b.dim() - 2,
    ]:
        raise ValueError(
            f"scaled_grouped_mm sums over the last dimension of mat_a and the one before the last of mat_b, not {contraction_dim}"
        )
    ends = [] if offs is None else offs.tolist()
    groups = len(ends) if offs is not None else mat_a.shape[0]
    bounds = [(0, 0)] * groups if offs is None else list(zip([0, *ends][: len(ends)], ends, strict=True))
    flat_a, flat_b = mat_a.dim() == 2, mat_b.dim() == 2
    along_sum = flat_a and flat_b
    _require(flat_a or mat_a.shape[0] == groups, f"There are {groups} groups, but mat_a has {mat_a.shape[0]}.")
    _require(flat_b or mat_b.shape[0] == groups, f"There are {groups} groups, but mat_b has {mat_b.shape[0]}.")
    split = mat_a.shape[1 if along_sum else 0] if flat_a else mat_b.shape[1]
    _require(
        offs is None or all(0 <= s <= e <= split for s, e in bounds),
        f"Offsets have to grow from 0 to {split} at most, got {ends}",
    )
    first = _Scales("scale_a", _listed(scale_a), _numbers(scale_recipe_a), _numbers(swizzle_a), groups, True)
    second = _Scales("scale_b", _listed(scale_b), _numbers(scale_recipe_b), _numbers(swizzle_b), groups, False)
    parts = []
    for i, (start, end) in enumerate(bounds):
        a = (mat_a[:, start:end] if along_sum else mat_a[start:end]) if flat_a else mat_a[i]
        b = (mat_b[start:end] if along_sum else mat_b[:, start:end]) if flat_b else mat_b[i]
        scales_a = first.group(i, mat_a, a, start, end, along_sum)
        scales_b = second.group(i, mat_b, b, start, end, along_sum)
        if not a.shape[0] or not a.shape[1] or not b.shape[1]:
            parts.append(_C.zeros(a.shape[0], b.shape[1], dtype=output_dtype, device=mat_a.device))
            continue
        recipes_a, recipes_b = map(int, first.recipes), map(int, second.recipes)
        parts.append(
            _C._scaled_mm_v2(
                a,
                b,
                scales_a,
                list(recipes_a),
                first.swizzles,
                scales_b,
                list(recipes_b),
                second.swizzles,
                None,
                output_dtype,
                [],
                use_fast_accum,
            )
        )
    if along_sum or not (flat_a or flat_b):
        return _C.stack(parts)
    dim = 0 if flat_a else 1
    rest = split - ends[-1] if ends else split
    if rest:  # what comes after the last group belongs to none
        sizes = (rest, mat_b.shape[-1]) if flat_a else (mat_a.shape[-2], rest)
        parts.append(_C.zeros(sizes, dtype=output_dtype, device=mat_a.device))
    return _C.cat(parts, dim)


def _scaled_grouped_mm(
    self, mat2, scale_a, scale_b, offs=None, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False
):
    """scaled_grouped_mm whose recipe is told by the scales: float32 is by rows, float8_e8m0fnu of swizzled blocks of 32."""
    _require(scale_result is None, "Scale result tensor provided, but it is not supported yet.")
    kinds = {scale_a.dtype, scale_b.dtype}
    if kinds not in ({_C.float32}, {_C.float8_e8m0fnu}):
        raise RuntimeError(
            "For FP8 scales must both be float32, or for MXFP8 both scales must be float8_e8m0fnu. "
            f"Got scale_a.dtype={scale_a.dtype} and scale_b.dtype={scale_b.dtype}."
        )
    blocks = kinds == {_C.float8_e8m0fnu}
    recipe = ScalingType.BlockWise1x32 if blocks else ScalingType.RowWise
    swizzle = SwizzleType.SWIZZLE_32_4_4 if blocks else None
    return scaled_grouped_mm(
        self,
        mat2,
        scale_a,
        recipe,
        scale_b,
        recipe,
        swizzle,
        swizzle,
        bias,
        offs,
        out_dtype or _C.bfloat16,
        (),
        use_fast_accum,
    )


def _scaled_grouped_mm_v2(
    self,
    mat2,
    scale_a,
    recipe_a,
    swizzle_a,
    scale_b,
    recipe_b,
    swizzle_b,
    offs=None,
    bias=None,
    out_dtype=None,
    contraction_dim=(),
    use_fast_accum=False,
):
    """scaled_grouped_mm with its arguments in torch's other order."""
    wanted = out_dtype or _C.bfloat16
    return scaled_grouped_mm(
        self,
        mat2,
        list(scale_a),
        recipe_a,
        list(scale_b),
        recipe_b,
        swizzle_a,
        swizzle_b,
        bias,
        offs,
        wanted,
        contraction_dim,
        use_fast_accum,
    )
