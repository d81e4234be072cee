"""Attention over packed sequences, held to attention of each sequence by itself, with gradients."""

import math

import mica as torch
import pytest
from mica.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

LENGTHS = [3, 5, 3, 0, 1]
KEY_LENGTHS = [4, 5, 4, 2, 0]


def positions(lengths):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def one_sequence(q, k, v, window, scale):
    """Softmax attention in plain operations; both sequences end together. Rows that see nothing are zero."""
    groups = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    rows, columns = scores.shape[-2:]
    i = torch.arange(rows).unsqueeze(1) + (columns - rows)
    j = torch.arange(columns)
    hidden = torch.zeros(rows, columns, dtype=torch.bool)
    if window[0] >= 0:
        hidden |= j < i - window[0]
    if window[1] >= 0:
        hidden |= j > i + window[1]
    scores = scores.masked_fill(hidden, -math.inf)
    weights = torch.softmax(scores, -1).masked_fill(hidden.all(-1, keepdim=True), 0)
    return torch.einsum("hqk,khd->qhd", weights, v), torch.logsumexp(scores, -1)


def make(heads=4, key_heads=4, dtype=torch.float64):
    torch.manual_seed(0)
    q = torch.randn(sum(LENGTHS), heads, 8, dtype=dtype, requires_grad=True)
    k = torch.randn(sum(KEY_LENGTHS), key_heads, 8, dtype=dtype, requires_grad=True)
    v = torch.randn(sum(KEY_LENGTHS), key_heads, 6, dtype=dtype, requires_grad=True)
    return q, k, v


def expected(q, k, v, window=(-1, -1), scale=8**-0.5):
    outs, sums = [], []
    for a, b, c in zip(q.split(LENGTHS), k.split(KEY_LENGTHS), v.split(KEY_LENGTHS), strict=True):
        out, lse = one_sequence(a, b, c, window, scale)
        outs.append(out)
        sums.append(lse)
    return torch.cat(outs), torch.cat(sums, 1)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0), (1, 1), (0, -1)])
@pytest.mark.parametrize("key_heads", [4, 2])
def test_each_sequence_attends_to_its_own(window, key_heads):
    q, k, v = make(key_heads=key_heads)
    cu_q, cu_k = positions(LENGTHS), positions(KEY_LENGTHS)
    out, lse = varlen_attn(
        q, k, v, cu_q, cu_k, 5, 5, window_size=window, enable_gqa=key_heads != 4, return_aux=AuxRequest(lse=True)
    )
    want, want_lse = expected(q, k, v, window)
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(lse.double(), want_lse.detach(), atol=1e-5, rtol=1e-5)
    weight = torch.randn_like(out)
    got = torch.autograd.grad((out * weight).sum(), (q, k, v))
    wanted = torch.autograd.grad((want * weight).sum(), (q, k, v))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes_scale_and_strides(dtype):
    q, k, v = (each.detach().to(dtype) for each in make())
    packed = torch.stack([k, k]).unbind(0)[0].transpose(0, 1).contiguous().transpose(0, 1)
    out = varlen_attn(q, packed, v, positions(LENGTHS), positions(KEY_LENGTHS), 5, 5, scale=0.3)
    assert out.dtype is dtype
    want, _ = expected(q.double(), k.double(), v.double(), scale=0.3)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)


def test_out_pages_and_used_lengths():
    q, k, v = (each.detach() for each in make())
    cu_q, cu_k = positions(LENGTHS), positions(KEY_LENGTHS)
    want = varlen_attn(q, k, v, cu_q, cu_k, 5, 5)
    out = torch.full_like(want, 7)
    assert varlen_attn_out(out, q, k, v, cu_q, cu_k, 5, 5) is out
    assert torch.equal(out, want)
    # The same keys on pages of two, in an order of their own.
    used = torch.tensor(KEY_LENGTHS, dtype=torch.int32)
    keys, values = torch.zeros(9, 2, 4, 8, dtype=k.dtype), torch.zeros(9, 2, 4, 6, dtype=k.dtype)
    table = torch.tensor([[8, 0, 0], [7, 1, 2], [6, 3, 0], [4, 0, 0], [0, 0, 0]], dtype=torch.int32)
    place = 0
    for row, length in zip(table.tolist(), KEY_LENGTHS, strict=True):
        for t in range(length):
            keys[row[t // 2], t % 2] = k[place + t]
            values[row[t // 2], t % 2] = v[place + t]
        place += length
    paged = varlen_attn(q, keys, values, cu_q, None, 5, 5, seqused_k=used, block_table=table)
    torch.testing.assert_close(paged, want)
    part = varlen_attn(q, k, v, cu_q, cu_k, 5, 5, seqused_k=torch.tensor([4, 5, 1, 2, 0], dtype=torch.int32))
    torch.testing.assert_close(part[:8], want[:8])
    assert not torch.allclose(part[8:11], want[8:11])


def test_errors():
    q, k, v = make()
    cu_q, cu_k = positions(LENGTHS), positions(KEY_LENGTHS)
    with pytest.raises(ValueError, match="same number of heads"):
        varlen_attn(q, k[:, :2], v[:, :2], cu_q, cu_k, 5, 5)
    with pytest.raises(ValueError, match="multiple of kv heads"):
        varlen_attn(q, k[:, :3], v[:, :3], cu_q, cu_k, 5, 5, enable_gqa=True)
    with pytest.raises(RuntimeError, match="dtype int32"):
        varlen_attn(q, k, v, cu_q.long(), cu_k, 5, 5)
    with pytest.raises(ValueError, match="end by 12"):
        varlen_attn(q, k, v, cu_q + torch.tensor([0, 0, 0, 0, 0, 1], dtype=torch.int32), cu_k, 5, 5)
    with pytest.raises(ValueError, match="longer than the maximum"):
        varlen_attn(q, k, v, cu_q, cu_k, 4, 5)
    with pytest.raises(RuntimeError, match="seqused_k is an inference-only parameter"):
        varlen_attn(q, k, v, cu_q, cu_k, 5, 5, seqused_k=torch.tensor(KEY_LENGTHS, dtype=torch.int32))


def test_nothing_at_all():
    empty = torch.zeros(0, 2, 4)
    assert varlen_attn(empty, empty, empty, positions([]), positions([]), 0, 0).shape == (0, 2, 4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0)])
def test_on_a_gpu(window):
    tensors = make(dtype=torch.float32)
    cu_q, cu_k = positions(LENGTHS), positions(KEY_LENGTHS)
    want = varlen_attn(*tensors, cu_q, cu_k, 5, 5, window_size=window)
    there = [each.detach().cuda().requires_grad_() for each in tensors]
    got = varlen_attn(*there, cu_q.cuda(), cu_k.cuda(), 5, 5, window_size=window)
    torch.testing.assert_close(got.cpu(), want, atol=1e-5, rtol=1e-5)
    ours = torch.autograd.grad(got.sum(), there)
    for a, b in zip(ours, torch.autograd.grad(want.sum(), tensors), strict=True):
        torch.testing.assert_close(a.cpu(), b, atol=1e-4, rtol=1e-4)
