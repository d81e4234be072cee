"""Attention: the fused kernels against plain operations, masks, layouts, gradients of both orders, errors."""

import math
import subprocess
import sys

import mica
import mica.nn.functional as F
import pytest
from mica import nn
from mica.autograd import gradcheck, gradgradcheck

sdpa = F.scaled_dot_product_attention


def reference(q, k, v, mask=None, is_causal=False, scale=None):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q @ k.transpose(-2, -1)) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == mica.bool else scores + mask
    if is_causal:
        below = mica.ones(q.shape[-2], k.shape[-2], dtype=mica.bool).tril()
        scores = scores.masked_fill(~below, -math.inf)
    return mica.nan_to_num(scores.softmax(-1), 0.0) @ v


def inputs(*shapes, dtype=mica.float64):
    return [mica.randn(s, dtype=dtype, requires_grad=True) for s in shapes]


SHAPES = [
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
    ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)),
    ((1, 2, 130, 16), (1, 2, 300, 16), (1, 2, 300, 16)),
    ((1, 1, 257, 33), (1, 1, 270, 33), (1, 1, 270, 19)),
    ((1, 2, 260, 64), (1, 2, 330, 64), (1, 2, 330, 70)),
    ((5, 4), (6, 4), (6, 3)),
    ((2, 5, 4), (2, 6, 4), (2, 6, 3)),
    ((2, 1, 3, 5, 4), (4, 3, 6, 4), (1, 1, 3, 6, 2)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype,tolerance", [(mica.float64, 1e-12), (mica.float32, 3e-5)])
def test_same_as_in_operations(shapes, is_causal, dtype, tolerance):
    q, k, v = inputs(*shapes, dtype=dtype)
    out, expected = sdpa(q, k, v, is_causal=is_causal), reference(q, k, v, is_causal=is_causal)
    assert out.shape == expected.shape
    mica.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
    seed = mica.randn(out.shape, dtype=dtype)
    for a, b in zip(
        mica.autograd.grad(out, (q, k, v), seed), mica.autograd.grad(expected, (q, k, v), seed), strict=True
    ):
        mica.testing.assert_close(a, b, rtol=tolerance, atol=10 * tolerance)


MASKS = {
    "pairs": (9, 11),
    "heads": (1, 3, 9, 11),
    "batch": (2, 1, 9, 11),
    "keys": (2, 1, 1, 11),
    "queries": (9, 1),
    "all": (2, 3, 9, 11),
}


@pytest.mark.parametrize("shape", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("kind", ["bool", "float64", "float32"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_masks(shape, kind, is_causal):
    q, k, v = inputs((2, 3, 9, 4), (2, 3, 11, 4), (2, 3, 11, 4))
    mask = mica.rand(shape) > 0.4 if kind == "bool" else mica.randn(shape, dtype=getattr(mica, kind))
    out, expected = sdpa(q, k, v, mask, is_causal=is_causal), reference(q, k, v, mask, is_causal)
    mica.testing.assert_close(out, expected, rtol=1e-7, atol=1e-7)
    seed = mica.randn(out.shape, dtype=out.dtype)
    for a, b in zip(
        mica.autograd.grad(out, (q, k, v), seed), mica.autograd.grad(expected, (q, k, v), seed), strict=True
    ):
        mica.testing.assert_close(a, b.nan_to_num(0.0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_query_that_sees_no_key_gives_zeros(requires_grad):
    q, k, v = inputs((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8), dtype=mica.float32)
    keep = mica.ones(4, 4, dtype=mica.bool)
    keep[1] = False
    added = mica.zeros(4, 4).masked_fill(~keep, -math.inf).requires_grad_(requires_grad)
    for mask in (keep, added):
        out = sdpa(q, k, v, mask)
        assert not out[:, :, 1].any() and out.isfinite().all()
        for grad in mica.autograd.grad(out.sum(), (q, k, v)):
            assert grad.isfinite().all()


def test_layout_follows_the_query():
    x = mica.randn(2, 7, 3, 4, 8)
    q, k, v = (x[:, :, i].transpose(1, 2) for i in range(3))
    out = sdpa(q, k, v, is_causal=True)
    assert out.transpose(1, 2).is_contiguous()
    mica.testing.assert_close(out, sdpa(q.contiguous(), k.contiguous(), v.contiguous(), is_causal=True))
    assert sdpa(q.contiguous(), k, v).is_contiguous()
    # A last dimension that is not adjacent, and an expanded batch.
    turned = mica.randn(2, 4, 8, 7).transpose(-2, -1)
    mica.testing.assert_close(sdpa(turned, k, v), sdpa(turned.contiguous(), k, v))
    shared = mica.randn(1, 1, 7, 8).expand(2, 4, 7, 8)
    mica.testing.assert_close(sdpa(q, shared, shared), sdpa(q, shared.contiguous(), shared.contiguous()))


def test_groups_of_heads_share_keys():
    q, k, v = inputs((2, 6, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4))
    out = sdpa(q, k, v, enable_gqa=True)
    expected = reference(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1))
    mica.testing.assert_close(out, expected)
    for a, b in zip(
        mica.autograd.grad(out.sum(), (q, k, v)), mica.autograd.grad(expected.sum(), (q, k, v)), strict=True
    ):
        mica.testing.assert_close(a, b)
    with pytest.raises(RuntimeError, match="Number of heads in key and value must divide the number of heads in"):
        sdpa(mica.randn(1, 3, 5, 4), mica.randn(1, 2, 5, 4), mica.randn(1, 2, 5, 4), enable_gqa=True)


@pytest.mark.parametrize("scale", [0.3, 0.0, -1.0])
def test_scales(scale):
    q, k, v = inputs((1, 2, 5, 4), (1, 2, 6, 4), (1, 2, 6, 4))
    mica.testing.assert_close(sdpa(q, k, v, scale=scale), reference(q, k, v, scale=scale))


@pytest.mark.parametrize("dtype,tolerance", [(mica.bfloat16, 1e-2), (mica.float16, 1e-3)])
def test_narrow_dtypes_are_rounded_once(dtype, tolerance):
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in inputs((2, 2, 40, 16), (2, 2, 50, 16), (2, 2, 50, 16)))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    out, expected = sdpa(q, k, v), reference(*wide)
    assert out.dtype == dtype
    mica.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    out.float().sum().backward()
    expected.sum().backward()
    for a, b in zip((q, k, v), wide, strict=True):
        assert a.grad.dtype == dtype
        mica.testing.assert_close(a.grad.double(), b.grad, rtol=2 * tolerance, atol=2 * tolerance)


def test_large_scores_do_not_overflow_and_nan_spreads_only_in_its_row():
    q, k, v = (mica.randn(1, 1, 20, 8) * s for s in (100, 100, 1))
    assert sdpa(q, k, v).isfinite().all()
    q[0, 0, 3, 0] = math.nan
    out = sdpa(q, k, v)
    assert out[0, 0, 3].isnan().all() and out.isnan().sum() == 8


@pytest.mark.parametrize("is_causal", [False, True])
def test_scores_that_grow_and_values_that_are_large(is_causal):
    # Blocks of keys whose scores are small need no shift; those before and behind them may.
    q, k, v = mica.randn(40, 24), mica.randn(900, 24), mica.randn(900, 20)
    if is_causal:
        q = mica.randn(900, 24)
    for rows, factor in ((slice(0, 0), 1.0), (slice(500, 520), 60.0), (slice(0, 20), 60.0), (slice(880, 900), -90.0)):
        grown = k.clone()
        grown[rows] *= factor
        for size in (1.0, 1e-30, 1e25, 1e35):
            scaled = v.clamp(-1, 1) * size
            expected = reference(q.double(), grown.double(), scaled.double(), is_causal=is_causal)
            result = sdpa(q, grown, scaled, is_causal=is_causal).double()
            assert ((result - expected).abs() <= 3e-5 * size).all(), (rows, size)
    v[700, 3] = math.inf
    k[800] = math.nan
    result = sdpa(q, k, v, is_causal=is_causal)
    seen = slice(700, 800) if is_causal else slice(0, 0)
    assert (result[seen, 3] == math.inf).all() and result[:, 4].isnan().any()
    assert result[800:].isnan().all() if is_causal else result.isnan().all()


def test_float32_keeps_its_digits_in_long_sequences():
    q, k, v = (mica.randn(1, 1, 300, 64) * s for s in (3.0, 1.0, 1e5))
    exact = reference(q.double(), k.double(), v.double())
    out = sdpa(q, k, v)
    plain = reference(q, k, v)
    error, usual = ((x.double() - exact).abs().max().item() for x in (out, plain))
    assert error <= 2 * usual
    v[0, 0, 5, 3] = math.inf
    out = sdpa(q, k, v)
    assert (out[..., 3] == math.inf).all() and out[..., :3].isfinite().all()
    v[0, 0, 5, 3] = 3.4e38
    assert sdpa(q * 0, k, v).isfinite().all()


def test_dropout_draws_and_scales():
    q, k, v = (mica.randn(1, 2, 30, 8) for _ in range(3))
    mica.manual_seed(3)
    first = sdpa(q, k, v, dropout_p=0.5)
    mica.manual_seed(3)
    assert mica.equal(first, sdpa(q, k, v, dropout_p=0.5)) and not mica.equal(first, sdpa(q, k, v))
    assert not sdpa(q, k, v, dropout_p=1.0).any()


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_both_orders(is_causal, masked):
    q, k, v = inputs((1, 2, 4, 3), (1, 1, 5, 3), (1, 1, 5, 2))
    mask = mica.rand(4, 5, dtype=mica.float64) if masked else None

    def run(q, k, v):
        return sdpa(q, k, v, mask, is_causal=is_causal, enable_gqa=True)

    assert gradcheck(run, (q, k, v))
    assert gradgradcheck(run, (q, k, v))
    if masked:
        assert gradcheck(lambda m: sdpa(q, k.expand(1, 2, 5, 3), v.expand(1, 2, 5, 2), m), (mask.requires_grad_(),))


def test_empty_inputs():
    x = mica.randn(2, 3, 4, 8)
    assert sdpa(x[:, :, :0], x, x).shape == (2, 3, 0, 8)
    assert not sdpa(x, x[:, :, :0], x[:, :, :0]).any()
    assert sdpa(x[:0], x[:0], x[:0]).shape == (0, 3, 4, 8)
    assert sdpa(x[..., :0], x[..., :0], x).shape == (2, 3, 4, 8)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda x: sdpa(x, x.half(), x), "Expected query, key, and value to have the same dtype"),
        (lambda x: sdpa(x[0, 0, 0], x, x), "Expected query, key, and value to all be  at least 2 dimensional"),
        (lambda x: sdpa(x, x, x, x.int()), "Expected attn_mask dtype to be bool or float or to match query dtype"),
        (lambda x: sdpa(x, x, x, dropout_p=1.5), "dropout probability has to be between 0 and 1, but got 1.5"),
        (lambda x: sdpa(x[0], x[0], x[0], mica.zeros(4, 4), is_causal=True), "_scaled_dot_product_attention: Explicit"),
        (lambda x: sdpa(x, x, x, mica.zeros(3, 3)), "expand"),
        (lambda x: sdpa(x, x[..., :4], x), "Expected size for first two dimensions of batch2 tensor to be"),
    ],
)
def test_errors(call, words):
    with pytest.raises(RuntimeError, match=words):
        call(mica.randn(1, 2, 4, 8))


@pytest.mark.parametrize("dtype", [mica.float32, mica.float64])
@pytest.mark.parametrize("keys", [1, 3, 16, 31, 32, 33, 255, 256, 257, 300])
@pytest.mark.parametrize("factor", [1, 40])
def test_causal_steps_end_anywhere(dtype, keys, factor):
    """More queries than keys and fewer, values in one piece and not, scores that need a shift and that need none."""
    for queries in (9, 14, 43, 299):
        q, k = mica.randn(1, 2, queries, 64, dtype=dtype) * factor, mica.randn(1, 2, keys, 64, dtype=dtype)
        for v in (mica.randn(1, 2, keys, 64, dtype=dtype), mica.randn(1, keys, 2, 24, dtype=dtype).transpose(1, 2)):
            expected = reference(q.double(), k.double(), v.double(), is_causal=True)
            ours = sdpa(q, k, v, is_causal=True)
            tolerance = 1e-12 if dtype == mica.float64 else 1e-5 if factor == 1 else 2e-4
            mica.testing.assert_close(ours.double(), expected, rtol=tolerance, atol=tolerance)


def test_few_heads_are_shared_among_many_threads():
    threads = mica.get_num_threads()
    mica.set_num_threads(5)
    try:
        q, k, v = inputs((1, 2, 500, 8), (1, 1, 470, 8), (1, 1, 470, 8))
        for is_causal in (False, True):
            out = sdpa(q, k, v, is_causal=is_causal, enable_gqa=True)
            expected = reference(q, k.expand(1, 2, 470, 8), v.expand(1, 2, 470, 8), is_causal=is_causal)
            mica.testing.assert_close(out, expected)
            seed = mica.randn(out.shape, dtype=out.dtype)
            ours = mica.autograd.grad(out, (q, k, v), seed)
            theirs = mica.autograd.grad(expected, (q, k, v), seed)
            for a, b in zip(ours, theirs, strict=True):
                mica.testing.assert_close(a, b)
    finally:
        mica.set_num_threads(threads)


def test_long_sequences_need_no_matrix_of_scores():
    """With 8192 queries and keys that matrix would take 256 MB."""
    program = (
        "import resource, mica\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "q = mica.randn(1, 1, 8192, 16, requires_grad=True)\n"
        "before = peak()\n"
        "mica.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()\n"
        "print(peak() - before)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 64 * 1024


def test_self_attention_in_eval_mode_lies_batch_first():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = mica.randn(2, 5, 8)
    hidden = mica.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with mica.no_grad():
        for options in ({}, {"need_weights": False}, {"key_padding_mask": hidden}):
            assert layer(x, x, x, **options)[0].view(2, -1).shape == (2, 40)
        # torch has no fast path for these.
        assert not layer(x, x, x, key_padding_mask=mica.zeros(2, 5))[0].is_contiguous()
        assert not layer(x, x.clone(), x)[0].is_contiguous()
    assert not layer(x, x, x)[0].is_contiguous()


@pytest.mark.parametrize("length", (5, 8, 12, 63, 250, 252, 253, 300, 503, 505, 509, 1021))
@pytest.mark.parametrize("more", (0, 3))
def test_steps_of_a_causal_mask(length, more):
    """Tiles on the diagonal see one key more with every row, in blocks of keys that end anywhere."""
    mica.manual_seed(length)
    query = mica.randn(1, 2, length, 64)
    key, value = (mica.randn(1, 2, length + more, 64) for _ in range(2))
    ours = mica.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    scores = query.double() @ key.double().transpose(-2, -1) / 8
    seen = mica.ones(length, length + more, dtype=mica.bool).tril()
    exact = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ value.double()
    assert (ours.double() - exact).abs().max() < 2e-6


@pytest.mark.parametrize("depth", (1, 2, 3, 64, 255, 256, 257))
@pytest.mark.parametrize("width", (4, 12, 16, 20, 28, 40, 64, 65))
def test_tiles_of_every_depth_and_width(depth, width):
    # Scores are made by rows of tiles, which know sums of 2 to 256 products, and values by tiles of up to three vectors.
    q, k, v = (mica.randn(2, 1, 45, n) for n in (depth, depth, width))
    for is_causal in (False, True):
        out = sdpa(q, k, v, is_causal=is_causal)
        expected = reference(q.double(), k.double(), v.double(), is_causal=is_causal)
        mica.testing.assert_close(out, expected.float(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("heads", (1, 2, 5))
@pytest.mark.parametrize("length", (16, 520, 700))
def test_heads_that_follow_each_other(heads, length):
    # While a head is computed, the first keys of a later one are fetched: fewer heads than threads, and the last ones.
    q, k, v = (mica.randn(2, n, length, 8) for n in (heads, 1, 1))
    out = sdpa(q, k, v, is_causal=True, enable_gqa=True)
    expected = reference(q.double(), k.double(), v.double(), is_causal=True)
    mica.testing.assert_close(out, expected.float(), rtol=2e-5, atol=2e-5)
