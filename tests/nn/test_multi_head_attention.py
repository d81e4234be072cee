"""nn.MultiheadAttention: numbers, masks, static keys, errors, names."""

import math

import mica
import mica.nn.functional as F
import pytest
from mica import nn


def inputs(*shapes, dtype=mica.float64):
    return [mica.randn(s, dtype=dtype, requires_grad=True) for s in shapes]


def heads_apart(m, query, key, value, mask=None):
    """MultiheadAttention of (length, batch, features) in operations."""
    e, h = m.embed_dim, m.num_heads
    weights = (
        m.in_proj_weight.chunk(3) if m._qkv_same_embed_dim else (m.q_proj_weight, m.k_proj_weight, m.v_proj_weight)
    )
    biases = (0, 0, 0) if m.in_proj_bias is None else m.in_proj_bias.chunk(3)
    q, k, v = (x @ w.t() + b for x, w, b in zip((query, key, value), weights, biases, strict=True))
    if m.bias_k is not None:
        k, v = (mica.cat([x, b.expand(1, x.shape[1], e)]) for x, b in ((k, m.bias_k), (v, m.bias_v)))
    q, k, v = (x.reshape(x.shape[0], x.shape[1], h, e // h).permute(1, 2, 0, 3) for x in (q, k, v))
    if m.add_zero_attn:
        k, v = (mica.cat([x, mica.zeros_like(x[:, :, :1])], 2) for x in (k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(e // h)
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return m.out_proj((weights @ v).permute(2, 0, 1, 3).reshape(query.shape)), weights


OPTIONS = [
    {},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True},
    {"kdim": 5, "vdim": 7},
    {"batch_first": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention(options, need_weights):
    m = nn.MultiheadAttention(8, 2, dtype=mica.float64, **options)
    query, key, value = inputs((4, 3, 8), (6, 3, m.kdim), (6, 3, m.vdim))
    expected, weights = heads_apart(m, query, key, value)
    given = [x.transpose(0, 1) if m.batch_first else x for x in (query, key, value)]
    out, seen = m(*given, need_weights=need_weights)
    mica.testing.assert_close(out.transpose(0, 1) if m.batch_first else out, expected)
    if need_weights:
        mica.testing.assert_close(seen, weights.mean(1))
        mica.testing.assert_close(m(*given, average_attn_weights=False)[1], weights)
    else:
        assert seen is None
    parameters = [query, key, value, *m.parameters()]
    for a, b in zip(
        mica.autograd.grad(out.square().sum(), parameters),
        mica.autograd.grad(expected.square().sum(), parameters),
        strict=True,
    ):
        mica.testing.assert_close(a, b)


@pytest.mark.parametrize("need_weights", [True, False])
def test_masks_of_multi_head_attention(need_weights):
    m = nn.MultiheadAttention(8, 2, dtype=mica.float64)
    (x,) = inputs((5, 3, 8))
    padding = mica.zeros(3, 5, dtype=mica.bool)
    padding[1, 3:] = True
    pairs = mica.zeros(5, 5, dtype=mica.bool).logical_or(mica.ones(5, 5, dtype=mica.bool).triu(1))
    added = mica.zeros(3, 1, 1, 5, dtype=mica.float64).masked_fill(padding[:, None, None], -math.inf)
    causal = mica.zeros(5, 5, dtype=mica.float64).masked_fill(pairs, -math.inf)

    def check(expected_mask, **masks):
        out = m(x, x, x, need_weights=need_weights, **masks)[0]
        mica.testing.assert_close(out, heads_apart(m, x, x, x, expected_mask)[0])

    check(added, key_padding_mask=padding)
    check(causal, attn_mask=pairs)
    check(causal, attn_mask=causal, is_causal=True)
    check(causal + added, attn_mask=pairs, key_padding_mask=padding)
    check(causal + added, attn_mask=causal, key_padding_mask=added[:, 0, 0], is_causal=True)
    check(causal, attn_mask=pairs.expand(6, 5, 5))
    with pytest.warns(UserWarning, match="Support for mismatched key_padding_mask and attn_mask is deprecated"):
        check(causal + added, attn_mask=causal, key_padding_mask=padding)


def test_unbatched_and_static_keys():
    m = nn.MultiheadAttention(8, 2)
    x = mica.randn(5, 8)
    out, weights = m(x, x, x)
    batched, batched_weights = m(x[:, None], x[:, None], x[:, None])
    assert out.shape == (5, 8) and weights.shape == (5, 5)
    mica.testing.assert_close(out, batched[:, 0])
    mica.testing.assert_close(weights, batched_weights[0])
    static = mica.randn(6, 7, 4)
    arguments = (8, 2, m.in_proj_weight, m.in_proj_bias, None, None, False, 0.0, m.out_proj.weight, m.out_proj.bias)
    y = mica.randn(5, 3, 8)
    out, weights = F.multi_head_attention_forward(y, y, y, *arguments, static_k=static, static_v=static)
    assert out.shape == (5, 3, 8) and weights.shape == (3, 5, 7)


@pytest.mark.parametrize(
    "call,error,words",
    [
        (lambda m, x: nn.MultiheadAttention(7, 2), AssertionError, "embed_dim must be divisible by num_heads"),
        (lambda m, x: nn.MultiheadAttention(0, 2), ValueError, "embed_dim and num_heads must be greater than 0"),
        (lambda m, x: m(x[None], x[None], x[None]), AssertionError, "query should be unbatched 2D or batched 3D"),
        (lambda m, x: m(x, x[0], x[0]), AssertionError, r"For batched \(3-D\) `query`, expected `key` and `value`"),
        (lambda m, x: m(x[..., :6], x, x), AssertionError, "was expecting embedding dimension of 8, but got 6"),
        (lambda m, x: m(x, x, x[:2]), AssertionError, "key shape .* does not match value shape"),
        (lambda m, x: m(x, x, x, is_causal=True), RuntimeError, "Need attn_mask if specifying the is_causal hint"),
        (lambda m, x: m(x, x, x, attn_mask=mica.zeros(3, 3)), RuntimeError, "The shape of the 2D attn_mask is"),
        (lambda m, x: m(x, x, x, attn_mask=mica.zeros(3, 5, 5)), RuntimeError, "The shape of the 3D attn_mask is"),
        (lambda m, x: m(x, x, x, attn_mask=mica.zeros(5, 5).int()), AssertionError, "only bool and floating types of"),
        (lambda m, x: m(x, x, x, mica.zeros(3, 4)), AssertionError, r"Expected key_padded_mask.shape\[1\] to be 5"),
    ],
)
def test_errors_of_multi_head_attention(call, error, words):
    with pytest.raises(error, match=words):
        call(nn.MultiheadAttention(8, 2), mica.randn(5, 3, 8))


def test_names_of_multi_head_attention():
    assert list(nn.MultiheadAttention(8, 2, add_bias_kv=True).state_dict()) == [
        "in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "out_proj.weight", "out_proj.bias",
    ]  # fmt: skip
    assert list(nn.MultiheadAttention(8, 2, kdim=3, bias=False).state_dict()) == [
        "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight",
    ]  # fmt: skip
