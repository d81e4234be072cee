"""Products in MXFP8, MXFP4 and NVFP4, against the decoded numbers: sums are exact, so that results are equal."""

import mica
import mica.nn.functional as F
import pytest
from mica.nn.functional import ScalingType as Scaling
from mica.nn.functional import SwizzleType as Swizzle

FOURS = mica.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FORMATS = {  # name -> block, recipe, dtype of elements, of scales
    "mxfp8": (32, Scaling.BlockWise1x32, mica.float8_e4m3fn, mica.float8_e8m0fnu),
    "mxfp4": (32, Scaling.BlockWise1x32, mica.float4_e2m1fn_x2, mica.float8_e8m0fnu),
    "nvfp4": (16, Scaling.BlockWise1x16, mica.float4_e2m1fn_x2, mica.float8_e4m3fn),
}


def tiled(scales):
    """The scales of a matrix in the order of SWIZZLE_32_4_4, written element by element."""
    rows, columns = scales.shape
    down, across = -(-rows // 128), -(-columns // 4)
    out = mica.zeros(down * across * 512, dtype=mica.uint8)
    for r in range(rows):
        for c in range(columns):
            tile = (r // 128) * across + c // 4
            out[tile * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = scales.view(mica.uint8)[r, c].item()
    return out.view(scales.dtype)


def operand(name, outer, inner, seed, swizzle):
    """A matrix (outer, inner) of the format, its scales, and its numbers in float32."""
    block, _, dtype, scale_dtype = FORMATS[name]
    generator = mica.Generator().manual_seed(seed)
    codes = mica.randint(0, 16, (outer, inner), generator=generator)
    numbers = FOURS[codes]
    if dtype == mica.float4_e2m1fn_x2:
        data = (codes[:, ::2] | codes[:, 1::2] << 4).to(mica.uint8).view(dtype)
    else:
        data = numbers.to(dtype)
    powers = mica.randint(-3, 4, (outer, -(-inner // block)), generator=generator)
    scales = (2.0**powers).to(scale_dtype)
    spread = scales.float().repeat_interleave(block, 1)[:, :inner]
    return data, tiled(scales) if swizzle else scales, numbers * spread


@pytest.mark.parametrize("swizzle", [Swizzle.NO_SWIZZLE, Swizzle.SWIZZLE_32_4_4])
@pytest.mark.parametrize("sizes", [(4, 64, 6), (130, 160, 3), (1, 32, 1), (33, 48, 40), (0, 32, 4)])
@pytest.mark.parametrize("name", FORMATS)
def test_products(name, sizes, swizzle):
    rows, inner, columns = sizes
    recipe = FORMATS[name][1]
    a, scale_a, exact_a = operand(name, rows, inner, 1, swizzle)
    b, scale_b, exact_b = operand(name, columns, inner, 2, swizzle)
    named = {"swizzle_a": swizzle, "swizzle_b": swizzle, "output_dtype": mica.float32}
    out = F.scaled_mm(a, b.t(), scale_a, recipe, scale_b, recipe, **named)
    assert out.equal(exact_a @ exact_b.t())
    bias = mica.arange(float(columns))
    assert F.scaled_mm(a, b.t(), scale_a, recipe, scale_b, recipe, bias=bias, **named).equal(
        exact_a @ exact_b.t() + bias
    )
    named["output_dtype"] = mica.bfloat16
    assert F.scaled_mm(a, b.t(), scale_a, recipe, scale_b, recipe, **named).equal((exact_a @ exact_b.t()).bfloat16())
    if swizzle:  # the scales alone tell what they are
        assert mica._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=mica.float32).equal(exact_a @ exact_b.t())


def test_a_scale_of_the_whole_matrix_beside_blocks_of_16():
    a, scale_a, exact_a = operand("nvfp4", 5, 32, 1, True)
    b, scale_b, exact_b = operand("nvfp4", 7, 32, 2, True)
    recipes = [Scaling.BlockWise1x16, Scaling.TensorWise]
    two, half = mica.tensor(2.0), mica.tensor([0.25])
    tiles = [Swizzle.SWIZZLE_32_4_4, Swizzle.NO_SWIZZLE]
    out = F.scaled_mm(
        a, b.t(), [scale_a, two], recipes, [scale_b, half], recipes, tiles, tiles, output_dtype=mica.float32
    )
    assert out.equal(exact_a @ exact_b.t() * 0.5)


def test_nan_scales():
    a, scale_a, _ = operand("mxfp8", 2, 32, 1, False)
    b, scale_b, _ = operand("mxfp8", 2, 32, 2, False)
    scale_a.view(mica.uint8)[1] = 255
    out = F.scaled_mm(a, b.t(), scale_a, Scaling.BlockWise1x32, scale_b, Scaling.BlockWise1x32)
    assert not out[0].isnan().any() and out[1].isnan().all()


def test_refusals():
    a, scale_a, _ = operand("mxfp8", 4, 64, 1, False)
    b, scale_b, _ = operand("mxfp8", 6, 64, 2, False)
    four, scale_four, _ = operand("nvfp4", 4, 64, 1, False)
    blocks, small = Scaling.BlockWise1x32, Scaling.BlockWise1x16
    refused = [
        (r"scale_a should have 8 elements, got: 2", (a, b.t(), scale_a[:1], blocks, scale_b, blocks), {}),
        (r"scale_b should have 512 elements, got: 12", (a, b.t(), scale_a, blocks, scale_b, blocks), {"swizzle_b": 1}),
        (r"Invalid scaling configuration", (a, b.t(), scale_a.float(), blocks, scale_b, blocks), {}),
        (r"Invalid scaling configuration", (a, b.t(), scale_a, small, scale_b, small), {}),
        (r"Invalid scaling configuration", (a, b.t(), scale_a, blocks, scale_b, small), {}),
        (r"Invalid scaling configuration", (four, four.t(), scale_four, blocks, scale_four, blocks), {}),
        (r"there is no order of scales 7", (a, b.t(), scale_a, blocks, scale_b, blocks), {"swizzle_a": 7}),
        (
            r"a result cannot be of float4_e2m1fn_x2",
            (four, four.t(), scale_four, small, scale_four, small),
            {"output_dtype": None},
        ),
    ]
    for words, positional, named in refused:
        with pytest.raises(ValueError, match=words):
            F.scaled_mm(*positional, **named)


def test_meta():
    a, scale_a, _ = operand("mxfp8", 4, 64, 1, True)
    b, scale_b, _ = operand("mxfp8", 6, 64, 2, True)
    meta = [x.to("meta") for x in (a, b.t(), scale_a, scale_b)]
    out = mica._scaled_mm(*meta, out_dtype=mica.bfloat16)
    assert out.is_meta and out.shape == (4, 6) and out.dtype == mica.bfloat16


# ---- groups


def groups_of(name, count, outer, inner, seed):
    made = [operand(name, outer, inner, seed + i, True) for i in range(count)]
    return mica.stack([m[0] for m in made]), mica.stack([m[1] for m in made]), mica.stack([m[2] for m in made])


@pytest.mark.parametrize("name", FORMATS)
def test_groups_of_rows(name):
    recipe, tiles = FORMATS[name][1], Swizzle.SWIZZLE_32_4_4
    sizes = [3, 0, 5]
    parts = [operand(name, size, 64, 10 + i, True) for i, size in enumerate(sizes)]
    a, exact_a = mica.cat([p[0] for p in parts]), [p[2] for p in parts]
    scale_a = mica.cat([p[1] for p in parts])
    b, scale_b, exact_b = groups_of(name, 3, 4, 64, 20)
    offs = mica.tensor([3, 3, 8], dtype=mica.int32)
    named = {"offs": offs, "output_dtype": mica.float32, "swizzle_a": tiles, "swizzle_b": tiles}
    out = F.scaled_grouped_mm(a, b.transpose(1, 2), scale_a, recipe, scale_b, recipe, **named)
    assert out.equal(mica.cat([x @ y.t() for x, y in zip(exact_a, exact_b, strict=True)]))
    if name == "mxfp8":
        assert mica._scaled_grouped_mm(a, b.transpose(1, 2), scale_a, scale_b, offs, out_dtype=mica.float32).equal(out)


def test_groups_along_the_sum_and_of_both():
    recipe, tiles = Scaling.BlockWise1x32, Swizzle.SWIZZLE_32_4_4
    inner = [32, 64]
    lefts = [operand("mxfp8", 3, k, 30 + i, True) for i, k in enumerate(inner)]
    rights = [operand("mxfp8", 5, k, 40 + i, True) for i, k in enumerate(inner)]
    a, b = mica.cat([x[0] for x in lefts], 1), mica.cat([x[0] for x in rights], 1).t()
    scale_a, scale_b = (mica.cat([x[1] for x in side]) for side in (lefts, rights))
    named = {"output_dtype": mica.float32, "swizzle_a": tiles, "swizzle_b": tiles}
    offs = mica.tensor([32, 96], dtype=mica.int32)
    out = F.scaled_grouped_mm(a, b, scale_a, recipe, scale_b, recipe, offs=offs, **named)
    assert out.equal(mica.stack([x[2] @ y[2].t() for x, y in zip(lefts, rights, strict=True)]))
    a, scale_a, exact_a = groups_of("mxfp8", 2, 3, 64, 50)
    b, scale_b, exact_b = groups_of("mxfp8", 2, 5, 64, 60)
    out = F.scaled_grouped_mm(a, b.transpose(1, 2), scale_a, recipe, scale_b, recipe, **named)
    assert out.equal(exact_a @ exact_b.transpose(1, 2))


def test_groups_scaled_by_rows():
    e4 = mica.float8_e4m3fn
    generator = mica.Generator().manual_seed(3)
    a, b = (mica.randint(-4, 5, s, generator=generator).float() for s in ((8, 16), (2, 4, 16)))
    rows, columns = 2.0 ** mica.arange(-4, 4), 2.0 ** mica.arange(8).reshape(2, 4)
    offs = mica.tensor([3, 7], dtype=mica.int32)
    named = {"offs": offs, "output_dtype": mica.float32}
    recipe = Scaling.RowWise
    out = F.scaled_grouped_mm(a.to(e4), b.to(e4).transpose(1, 2), rows, recipe, columns, recipe, **named)
    left, right = a * rows[:, None], b * columns[:, :, None]
    expected = mica.cat([left[:3] @ right[0].t(), left[3:7] @ right[1].t(), mica.zeros(1, 4)])
    assert out.equal(expected)
    # A second matrix split by columns, and two split along the sum.
    out = F.scaled_grouped_mm(b.to(e4), a.to(e4).t(), columns, recipe, rows, recipe, **named)
    assert out.equal(mica.cat([right[0] @ left[:3].t(), right[1] @ left[3:7].t(), mica.zeros(4, 1)], 1))
    x, y = a[:4], a[4:]
    scale_x, scale_y = columns.flatten(), columns.flip(0).flatten()
    named["offs"] = mica.tensor([5, 16], dtype=mica.int32)
    out = F.scaled_grouped_mm(x.to(e4), y.to(e4).t(), scale_x, recipe, scale_y, recipe, **named)
    for i, (start, end) in enumerate(((0, 5), (5, 16))):
        scaled = [m[:, start:end] * s.reshape(2, 4)[i][:, None] for m, s in ((x, scale_x), (y, scale_y))]
        assert out[i].equal(scaled[0] @ scaled[1].t())
    for words, positional in (
        (
            "Expected scale_a to have 8 elements, got 7",
            (a.to(e4), b.to(e4).transpose(1, 2), rows[:7], recipe, columns, recipe),
        ),
        ("contraction dimension", (a.to(e4), b.to(e4), rows, recipe, columns, recipe)),
        (
            "There are 2 groups, but mat_b has 1",
            (a.to(e4), b[:1].to(e4).transpose(1, 2), rows, recipe, columns, recipe),
        ),
    ):
        with pytest.raises(RuntimeError, match=words):
            F.scaled_grouped_mm(*positional, offs=offs)
    with pytest.raises(RuntimeError, match="Offsets tensor not provided"):
        F.scaled_grouped_mm(a.to(e4), b.to(e4).transpose(1, 2), rows, recipe, columns, recipe)
    with pytest.raises(RuntimeError, match="Offsets have to grow"):
        F.scaled_grouped_mm(a.to(e4), b.to(e4).transpose(1, 2), rows, recipe, columns, recipe, offs=offs + 5)
