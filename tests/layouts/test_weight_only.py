"""Products with weights of 8 and 4 bits: what they compute, and how far from it they are.

Activations become 16-bit integers, one step for each group: of 16-bit rows the result is right to its rounding, of
float32 rows with 4 bits to 1e-4 of the greatest element.
"""

import mica as torch
import pytest

ERRORS = {torch.float32: 1e-4, torch.float16: 1e-3, torch.bfloat16: 6e-3}


def relative_error(got, expected):
    return ((got.double() - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("group", [32, 64, 128, 256])
@pytest.mark.parametrize("dtype", ERRORS)
def test_four_bits(dtype, group):
    torch.manual_seed(group)
    weight = torch.randint(0, 16, (48, 512), dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(weight, 2)
    assert packed.shape == (48, 256) and packed.dtype is torch.uint8
    pairs = (torch.rand(512 // group, 48, 2) - 0.3).to(dtype)
    scale, zero = (pairs.double()[..., i].t().unsqueeze(-1) for i in range(2))
    real = ((weight.double().reshape(48, -1, group) - 8) * scale + zero).reshape(48, 512)
    for rows in (1, 2, 7):
        x = torch.randn(rows, 512).to(dtype)
        got = torch._weight_int4pack_mm_for_cpu(x, packed, group, pairs)
        assert got.dtype is dtype and relative_error(got, x.double() @ real.t()) < ERRORS[dtype]
    assert torch._weight_int4pack_mm_for_cpu(x[:0], packed, group, pairs).shape == (0, 48)


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 1), (3, 5, 63), (2, 34, 1030)])
def test_eight_bits(rows, columns, depth, dtype):
    torch.manual_seed(depth)
    weight = torch.randint(-128, 128, (columns, depth), dtype=torch.int8)
    x, scales = torch.randn(rows, depth).to(dtype), torch.rand(columns).to(dtype)
    expected = (x.double() @ weight.double().t()) * scales.double()
    assert relative_error(torch._weight_int8pack_mm(x, weight, scales), expected) < ERRORS[dtype]


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-6), (torch.float16, 6e-4), (torch.bfloat16, 5e-3)])
@pytest.mark.parametrize(("columns", "depth"), [(1, 5), (34, 512), (50, 1100), (16, 65)])
def test_eight_bits_by_the_number_of_rows(dtype, error, columns, depth):
    """Rows are multiplied by themselves, in tiles, or in tiles that share rows with the one before."""
    torch.manual_seed(columns)
    weight = torch.randint(-128, 128, (columns, depth), dtype=torch.int8)
    x, scales = torch.randn(150, depth).to(dtype), torch.rand(columns).to(dtype)
    expected = (x.double() @ weight.double().t()) * scales.double()
    for rows in (1, 2, 4, 5, 6, 7, 8, 9, 12, 13, 16, 20, 21, 150):
        got = torch._weight_int8pack_mm(x[:rows], weight, scales)
        assert relative_error(got, expected[:rows]) < error


@pytest.mark.parametrize("rows", [1, 9])
def test_eight_bits_of_the_greatest_numbers(rows):
    """No sum leaves its 32 bits."""
    for sign in (-1.0, 1.0):
        x = torch.full((rows, 1536), sign)
        x[:, 1::2] *= 126 / 127 + 126 / 127 / 254  # the greatest number of every plane but the first
        weight = torch.full((17, 1536), -128, dtype=torch.int8)
        for dtype, error in ((torch.float32, 1e-6), (torch.bfloat16, 4e-3)):
            got = torch._weight_int8pack_mm(x.to(dtype), weight, torch.ones(17, dtype=dtype))
            assert relative_error(got, x.to(dtype).double() @ weight.double().t()) < error


@pytest.mark.parametrize("group", [32, 128])
def test_four_bits_of_one_row(group):
    """The pairs of every group and column are used, those without a least number too."""
    torch.manual_seed(group)
    weight = torch.randint(0, 16, (80, 1024), dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(weight, 2)
    x = torch.randn(3, 1024).bfloat16()
    for least in (0.0, 0.3):
        pairs = (torch.rand(1024 // group, 80, 2) * torch.tensor([1.0, least])).bfloat16()
        scale, zero = (pairs.double()[..., i].t().unsqueeze(-1) for i in range(2))
        real = ((weight.double().reshape(80, -1, group) - 8) * scale + zero).reshape(80, 1024)
        got = torch._weight_int4pack_mm_for_cpu(x[:1], packed, group, pairs)
        assert relative_error(got, x[:1].double() @ real.t()) < 5e-3
        assert torch.equal(got, torch._weight_int4pack_mm_for_cpu(x, packed, group, pairs)[:1])


def test_products_of_integers_are_exact():
    torch.manual_seed(0)
    for rows, columns, depth in ((1, 1, 1), (4, 4, 16), (5, 7, 33), (9, 70, 200), (40, 70, 300), (161, 33, 65)):
        a = torch.randint(-128, 128, (rows, depth), dtype=torch.int8)
        b = torch.randint(-128, 128, (depth, columns), dtype=torch.int8)
        assert torch.equal(torch._int_mm(a, b).long(), (a.long().unsqueeze(2) * b.long()).sum(1))


def test_infinities_stay_in_their_row():
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.full((16, 32), 9, dtype=torch.int32), 2)
    x = torch.ones(2, 32)
    x[0, 3] = float("inf")
    got = torch._weight_int4pack_mm_for_cpu(x, packed, 32, torch.ones(1, 16, 2))
    assert got[0].tolist() == [float("inf")] * 16 and got[1].tolist() == pytest.approx([64.0] * 16, rel=1e-4)
    for rows in (2, 11):
        many = torch.cat((x, torch.ones(rows - 2, 32)))
        scaled = torch._weight_int8pack_mm(many, torch.ones(3, 32, dtype=torch.int8), torch.ones(3))
        assert scaled[0].tolist() == [float("inf")] * 3
        assert scaled[1:].flatten().tolist() == pytest.approx([32.0] * (3 * rows - 3), rel=1e-4)
    x = torch.ones(1, 32, dtype=torch.bfloat16)
    x[0, 3] = float("nan")
    assert torch._weight_int4pack_mm_for_cpu(x, packed, 32, torch.ones(1, 16, 2).bfloat16()).isnan().all()


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (torch.zeros(16, 32), "expect weight to be kInt"),
        (torch.zeros(16, dtype=torch.int32), "expect weight to be 2D"),
        (torch.zeros(10, 32, dtype=torch.int32), "N to be dividable by 16"),
        (torch.zeros(16, 33, dtype=torch.int32), "K to be dividable by 2"),
    ],
)
def test_weights_that_cannot_be_packed(weight, words):
    with pytest.raises(RuntimeError, match=words):
        torch._convert_weight_to_int4pack_for_cpu(weight, 2)


def test_wrong_products():
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.zeros(16, 64, dtype=torch.int32), 2)
    x, pairs = torch.ones(1, 64), torch.ones(2, 16, 2)
    for args, words in (
        ((x.double(), packed, 32, pairs), "either 32-bit or 16-bit float"),
        ((x, packed.int(), 32, pairs), "B to be uint8"),
        ((x[:, :32], packed, 32, pairs), "packed weights of 32 columns"),
        ((x, packed, 16, pairs), "qGroupSize to be 32, 64, 128 or 256"),
        ((x, packed, 128, pairs), "K to be divisible by qGroupSize"),
        ((x, packed, 32, pairs[:1]), "qScaleAndZeros to be 3d"),
        ((x, packed, 32, pairs.bfloat16()), "expected scalar type"),
    ):
        with pytest.raises(RuntimeError, match=words):
            torch._weight_int4pack_mm_for_cpu(*args)
    with pytest.raises(TypeError, match="a tensor was expected"):
        torch._convert_weight_to_int4pack_for_cpu(3, 2)


@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("with_bias", [True, False])
def test_four_bits_packed_with_their_scales(block, with_bias):
    rows, columns = 6, 128
    integers = torch.randint(0, 16, (rows, columns))
    halves = (integers[:, 1::2] << 4 | integers[:, 0::2]).to(torch.uint8)
    scales = torch.rand(rows, columns // block) * 0.1 + 0.01
    bias = torch.randn(rows) if with_bias else None
    packed = torch._dyn_quant_pack_4bit_weight(halves, scales, bias, block, columns, rows)
    x = torch.randn(2, 3, columns)
    expected = x @ ((integers - 8) * scales.repeat_interleave(block, 1)).t() + (bias if with_bias else 0)
    for call in (torch._dyn_quant_matmul_4bit, torch.ops.aten._dyn_quant_matmul_4bit):
        error = (call(x, packed, block, columns, rows) - expected).abs().max()
        assert error <= ERRORS[torch.float32] * expected.abs().max()
    assert torch._dyn_quant_matmul_4bit(x.bfloat16(), packed, block, columns, rows).dtype == torch.bfloat16
    for wrong in (
        lambda: torch._dyn_quant_pack_4bit_weight(halves[:, 1:], scales, bias, block, columns, rows),
        lambda: torch._dyn_quant_pack_4bit_weight(halves, scales[1:], bias, block, columns, rows),
        lambda: torch._dyn_quant_pack_4bit_weight(halves, scales, bias, 48, columns, rows),
        lambda: torch._dyn_quant_matmul_4bit(x[..., 1:], packed, block, columns, rows),
        lambda: torch._dyn_quant_matmul_4bit(x, packed[1:], block, columns, rows),
    ):
        with pytest.raises(RuntimeError, match="_dyn_quant_"):
            wrong()


@pytest.mark.parametrize("dtype", ERRORS)
def test_gradients_of_what_is_multiplied(dtype):
    torch.manual_seed(3)
    weight = torch.randint(-128, 128, (32, 64), dtype=torch.int8)
    x = torch.randn(5, 64).to(dtype).requires_grad_()
    scales = torch.rand(32).to(dtype).requires_grad_()
    grad = torch.randn(5, 32).to(dtype)
    torch._weight_int8pack_mm(x, weight, scales).backward(grad)
    real = weight.double() * scales.detach().double().unsqueeze(1)
    assert relative_error(x.grad, grad.double() @ real) < 2 * ERRORS[dtype]
    product = x.detach().double() @ weight.double().t()
    assert relative_error(scales.grad, (grad.double() * product).sum(0)) < 2 * ERRORS[dtype]

    small = torch.randint(0, 16, (32, 64), dtype=torch.int32)
    packed = torch._convert_weight_to_int4pack_for_cpu(small, 2)
    pairs = (torch.rand(2, 32, 2) - 0.3).to(dtype)
    scale, zero = (pairs.double()[..., i].t().unsqueeze(-1) for i in range(2))
    real = ((small.double().reshape(32, -1, 32) - 8) * scale + zero).reshape(32, 64)
    x.grad = None
    torch._weight_int4pack_mm_for_cpu(x, packed, 32, pairs).backward(grad)
    assert relative_error(x.grad, grad.double() @ real) < 2 * ERRORS[dtype]
    product = torch._weight_int4pack_mm_for_cpu(x, packed, 32, pairs.requires_grad_())
    with pytest.raises(NotImplementedError, match="derivative for 'qScaleAndZeros'"):
        product.sum().backward()


def test_weights_of_four_bits_may_come_in_blocks():
    weights = torch.arange(4 * 32).reshape(4, 32).to(torch.uint8)
    scales = torch.linspace(0.5, 1.5, 8)
    rows = torch._dyn_quant_pack_4bit_weight(weights, scales, None, 32, 64, 4)
    assert torch.equal(torch._dyn_quant_pack_4bit_weight(weights.reshape(8, 16), scales, None, 32, 64, 4), rows)
    with pytest.raises(RuntimeError, match="expected weights of torch.uint8 and shape"):
        torch._dyn_quant_pack_4bit_weight(weights[:3], scales, None, 32, 64, 4)


def test_int_mm_takes_numbers_without_a_sign():
    """Recorded from torch 2.13."""
    a = torch.tensor([[255, 0, 3], [128, 127, 1]], dtype=torch.uint8)
    b = torch.tensor([[-128, 127], [1, 2], [-3, 4]], dtype=torch.int8)
    expected, out = [[-32649, 32397], [-16260, 16514]], torch.empty(2, 2, dtype=torch.int32)
    assert torch._int_mm(a, b).tolist() == expected and torch._int_mm(a, b, out=out).tolist() == expected
    assert torch._int_mm(a.t().contiguous().t(), b).tolist() == expected
    assert torch._int_mm(a[:0], b).shape == (0, 2) and torch._int_mm(a[:, :0], b[:0]).tolist() == [[0, 0], [0, 0]]
    for left, right, words in (
        (b, a, "Expected mat2 dtype to be of type int8"),
        (a.float(), b, "Expected self dtype to be int8"),
    ):
        with pytest.raises(RuntimeError, match=words):
            torch._int_mm(left, right)
