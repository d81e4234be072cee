"""Products of 8-bit floats with scales: torch's recorded results, forms, devices and errors."""

import json
from pathlib import Path

import mica
import mica.nn.functional as F
import pytest
import scaled_product_cases as cases

RECORDED = json.loads((Path(__file__).parents[1] / "recorded/scaled_products.json").read_text())
E4 = mica.float8_e4m3fn
ONE = mica.tensor(1.0)


def pair(m=32, k=16, n=48, device="cpu"):
    a, b = cases.matrices(mica, (m, k, n), cases.E4, cases.E4)
    return a.to(device), b.t().contiguous().to(device).t()


@pytest.mark.parametrize("name", cases.CASES)
def test_results(name):
    assert cases.result(mica, cases.CASES[name]) == RECORDED["results"][name]


@pytest.mark.parametrize("name", cases.REFUSED)
def test_refusals(name):
    assert cases.refusal(mica, cases.REFUSED[name]) == RECORDED["refused"][name]


def test_matrices_of_any_strides():
    a, b = pair(12, 10, 6)
    expected = a.float() @ b.float()
    spaced = mica.zeros(24, 20).to(E4)[::2, ::2]
    spaced.copy_(a)
    for left in (a, a.t().contiguous().t(), spaced):
        for right in (b, b.contiguous(), b.t().contiguous().t()):
            assert mica._scaled_mm(left, right, ONE, ONE, out_dtype=mica.float32).equal(expected)
    row = a[:1].expand(12, 10)
    assert mica._scaled_mm(row, b, ONE, ONE, out_dtype=mica.float32).equal(expected[:1].expand(12, 6))


def test_out():
    a, b = pair()
    expected = mica._scaled_mm(a, b, ONE, ONE, out_dtype=mica.float32)
    out = mica.empty(32, 48)
    assert mica._scaled_mm(a, b, ONE, ONE, out=out) is out and out.equal(expected)  # of the dtype that out has
    out = mica.empty(48, 32, dtype=mica.bfloat16).t()
    mica._scaled_mm(a, b, ONE, ONE, out_dtype=mica.bfloat16, out=out)
    assert out.equal(expected.bfloat16()) and out.stride() == (1, 32)
    with pytest.raises(ValueError, match="out_dtype must match output matrix type"):
        mica._scaled_mm(a, b, ONE, ONE, out_dtype=mica.float32, out=out)
    assert mica.ops.aten._scaled_mm.default(a, b, ONE, ONE, out_dtype=mica.float32).equal(expected)


def test_inputs_and_gradients():
    a, b = pair()
    scale = mica.tensor(2.0, requires_grad=True)
    assert not mica._scaled_mm(a, b, scale, ONE, out_dtype=mica.float32).requires_grad


def test_meta_device_has_the_rules_of_cuda():
    a, b = pair(device="meta")
    one = ONE.to("meta")
    out = mica._scaled_mm(a, b, one, one, out_dtype=mica.bfloat16)
    assert out.shape == (32, 48) and out.dtype == mica.bfloat16 and out.is_meta
    assert mica._scaled_mm(a, b, one, one).dtype == E4
    rows = mica._scaled_mm(a, b, mica.ones(32, 1, device="meta"), mica.ones(1, 48, device="meta"))
    assert rows.shape == (32, 48)
    with pytest.raises(RuntimeError, match=r"mat2 must be col_major, got stride \(48, 1\)"):
        mica._scaled_mm(a, b.contiguous(), one, one)
    with pytest.raises(RuntimeError, match=r"self must be row_major, got stride \(1, 32\)"):
        mica._scaled_mm(a.t().contiguous().t(), b, one, one)
    with pytest.raises(RuntimeError, match=r"Expected self.size\(1\) to be divisible by 16, but got self.size\(1\)=5"):
        mica._scaled_mm(a[:, :5], b[:5], one, one)
    with pytest.raises(RuntimeError, match="Expected both dimensions of mat2 to be divisible by 16"):
        mica._scaled_mm(a, b[:, :40], one, one)


def test_a_mode_sees_one_operation():
    from mica.utils.flop_counter import FlopCounterMode

    a, b = pair()
    with FlopCounterMode(display=False) as counter:
        mica._scaled_mm(a, b, ONE, ONE)
    assert counter.get_total_flops() == 2 * 32 * 16 * 48


def test_functional():
    tensorwise, rowwise, blocks = F.ScalingType.TensorWise, F.ScalingType.RowWise, F.ScalingType.BlockWise1x128
    a, b = pair()
    two, half = mica.tensor(2.0), mica.tensor(0.25)
    out = F.scaled_mm(a, b, two, tensorwise, half, tensorwise)
    assert out.dtype == mica.bfloat16 and out.equal(mica._scaled_mm(a, b, two, half, out_dtype=mica.bfloat16))
    assert F.scaled_mm(a, b, [two], [tensorwise], half, tensorwise, output_dtype=None).dtype == E4
    rows, columns = mica.arange(32.0).reshape(32, 1), mica.arange(48.0).reshape(1, 48)
    expected = mica._scaled_mm(a, b, rows, columns, out_dtype=mica.float32)
    bias = mica.arange(48.0)
    named = {"bias": bias, "output_dtype": mica.float32, "contraction_dim": (1, 0)}
    assert F.scaled_mm(a, b, rows, rowwise, columns, rowwise, **named).equal(expected + bias)
    # Scales of any strides.
    spaced = mica.zeros(32, 2)
    spaced[:, :1] = rows
    assert F.scaled_mm(a, b, spaced[:, :1], rowwise, columns, rowwise, output_dtype=mica.float32).equal(expected)
    out = mica.empty(0)
    mica._scaled_mm_v2(a, b, [rows], [1], [], [columns], [1], [], None, mica.float32, out=out)
    assert out.equal(expected)
    refused = [
        (r"scale_a must have 1 Float element", (a, b, rows, tensorwise, columns, tensorwise), {}),
        (r"scale_a must have shape \[32, 1\], got", (a, b, rows[:31], rowwise, columns, rowwise), {}),
        (r"Invalid scaling configuration", (a, b, two, tensorwise, columns, rowwise), {}),
        (r"Invalid scaling configuration", (a, b, rows, blocks, columns, blocks), {}),
        (r"Invalid scaling configuration", (a.float(), b, two, tensorwise, half, tensorwise), {}),
        (r"mat_a must be a matrix", (a[0], b, two, tensorwise, half, tensorwise), {}),
        (r"cannot be multiplied \(32x16 and 8x48\)", (a, b[:8], two, tensorwise, half, tensorwise), {}),
        (r"with contraction dims mat_a: 0", (a, b, two, tensorwise, half, tensorwise), {"contraction_dim": (0, 1)}),
        (r"exactly 2 elements", (a, b, two, tensorwise, half, tensorwise), {"contraction_dim": (1,)}),
        (r"Bias must be size 48 but got 3", (a, b, two, tensorwise, half, tensorwise), {"bias": mica.ones(3)}),
    ]
    for words, positional, named in refused:
        with pytest.raises(ValueError, match=words):
            F.scaled_mm(*positional, **named)
