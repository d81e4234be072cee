"""flex_attention: scores and masks as functions."""

import math

import mica
import pytest
from mica.nn.attention.bias import causal_lower_right, causal_upper_left
from mica.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)


def inputs(batch=2, heads=4, queries=7, keys=9, kv_heads=None):
    mica.manual_seed(0)
    kv = kv_heads or heads
    made = mica.randn(batch, heads, queries, 8), mica.randn(batch, kv, keys, 8), mica.randn(batch, kv, keys, 5)
    return [t.double().requires_grad_() for t in made]


def expected(q, k, v, score=None, mask=None):
    """One score after the other, as the functions are written."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    rows = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                row = []
                for j in range(k.shape[2]):
                    at = [mica.tensor(n) for n in (b, h, i, j)]
                    value = scores[b, h, i, j] if score is None else score(scores[b, h, i, j], *at)
                    row.append(value if mask is None or mask(*at) else mica.tensor(-math.inf, dtype=mica.float64))
                row = mica.stack(row)
                weights = mica.softmax(row, 0) if row.isfinite().any() else mica.zeros_like(row)
                rows.append(weights @ v[b, h])
    return mica.stack(rows).reshape(*q.shape[:3], -1)


SLOPES = mica.tensor([0.5, 0.25, 0.125, 0.0625], dtype=mica.float64)
DOCUMENTS = mica.tensor([[0, 0, 1, 1, 1, 2, 2, 2, 2], [0, 1, 1, 1, 1, 1, 1, 2, 2]])


def causal(b, h, q, kv):
    return q >= kv


def alibi(score, b, h, q, kv):
    return score + SLOPES[h] * (kv - q)


def same_document(b, h, q, kv):
    return DOCUMENTS[b, q] == DOCUMENTS[b, kv]


@pytest.mark.parametrize(
    "score", [None, alibi, lambda s, b, h, q, kv: mica.tanh(s / 5) * 5, lambda s, b, h, q, kv: s * 2]
)
@pytest.mark.parametrize("mask", [None, causal, same_document, lambda b, h, q, kv: (q < 3) & (h != 1)])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_values_and_gradients(score, mask, kv_heads):
    q, k, v = inputs(kv_heads=kv_heads)
    block_mask = None if mask is None else create_block_mask(mask, 2, 4, 7, 9, BLOCK_SIZE=4)
    out = flex_attention(q, k, v, score, block_mask, enable_gqa=True)
    wanted = expected(q, k, v, score, mask)
    assert mica.allclose(out, wanted, rtol=1e-10, atol=1e-12)
    for a, b in zip(mica.autograd.grad(out.sum(), (q, k, v)), mica.autograd.grad(wanted.sum(), (q, k, v)), strict=True):
        assert mica.allclose(a, b, rtol=1e-8, atol=1e-10)


def test_functions_that_are_not_of_elements():
    # A sum over all scores would mean something else for all at once: such functions are called score by score.
    q, k, v = inputs(1, 1, 3, 4)
    for score in (lambda s, b, h, i, j: s.sum() + s.dim(), lambda s, b, h, i, j: s + 1 if int(i) > 1 else s - 1):
        assert mica.allclose(flex_attention(q, k, v, score), expected(q, k, v, score))


def test_a_captured_tensor_has_a_gradient():
    q, k, v = inputs()
    bias = mica.randn(4, 9, dtype=mica.float64, requires_grad=True)
    flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h, j]).pow(2).sum().backward()
    assert bias.grad.shape == (4, 9) and bias.grad.abs().sum() > 0


def test_lse():
    q, k, v = inputs()
    out, lse = flex_attention(q, k, v, return_lse=True)
    assert mica.allclose(lse, mica.logsumexp(q @ k.transpose(-2, -1) / math.sqrt(8), -1))
    again, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True))
    assert mica.equal(again, out) and mica.equal(aux.lse, lse) and aux.max_scores is None
    nothing = create_block_mask(lambda b, h, q, kv: q < 0, None, None, 7, 9)
    out, lse = flex_attention(q, k, v, block_mask=nothing, return_lse=True)
    assert (out == 0).all() and (lse == -math.inf).all()


def test_block_masks():
    mask = create_block_mask(causal, 2, None, 300, 260)
    assert mask.shape == (2, 1, 300, 260) and mask.BLOCK_SIZE == (128, 128) and mask.numel() == 156000
    assert mask.kv_num_blocks.tolist() == [[[1, 1, 3]]] * 2 and mask.full_kv_num_blocks.tolist() == [[[0, 1, 0]]] * 2
    assert mask.kv_indices[0, 0].tolist() == [[0, 1, 2], [1, 0, 2], [0, 1, 2]]
    assert mask.q_num_blocks[0, 0].tolist() == [2, 2, 1] and mask.q_indices[0, 0].tolist() == [
        [0, 2, 1],
        [1, 2, 0],
        [2, 0, 1],
    ]
    assert mask.to_dense()[0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert f"{mask.sparsity():.4f}" == "-26.0308" and "mask_mod=causal" in repr(mask)
    many = mica.nn.attention.flex_attention.create_block_mask(causal, 5, 1, 128, 128, device="cpu")
    assert str(many).endswith(
        "...\nTo print out more, set BlockMask.to_string(limit=N)\nYou can also index (BlockMask[batch, head]) to choose a specific batch or head\n)"
    )
    assert str(mask).startswith(
        "BlockMask(shape=(2, 1, 300, 260), sparsity=-26.03%, \n(0, 0)\n██    \n████  \n██████\n"
    )
    part = mask[0]
    assert part.shape == (1, 1, 300, 260)
    with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
        part.mask_mod(*[mica.tensor(0)] * 4)
    assert mask._adjust(128, 128).shape == (2, 1, 128, 128)


def test_masks_of_blocks_alone():
    q, k, v = inputs(1, 1, 4, 6)
    blocks = BlockMask.from_kv_blocks(
        mica.ones(1, 1, 2, dtype=mica.int32), mica.tensor([[[[0, 1], [1, 0]]]], dtype=mica.int32), BLOCK_SIZE=(2, 3)
    )
    wanted = expected(q, k, v, mask=lambda b, h, i, j: (i < 2) == (j < 3))
    assert mica.allclose(flex_attention(q, k, v, block_mask=blocks), wanted)


def test_masks_combine():
    both = create_mask(and_masks(causal, lambda b, h, q, kv: q - kv < 2), None, None, 4, 4)
    assert both[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    either = create_mask(or_masks(causal, lambda b, h, q, kv: kv < 2), None, None, 3, 3)
    assert either[0, 0].int().tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    of_scores = create_mask(lambda s, b, h, q, kv: mica.where(q >= kv, s, -math.inf), 1, 2, 3, 3)
    assert of_scores.shape == (1, 2, 3, 3) and of_scores[0, 1, 0].tolist() == [True, False, False]


def test_errors():
    q, k, v = inputs()
    for call, kind, words in [
        (lambda: flex_attention(q[0], k, v), NotImplementedError, "must be 4D tensors"),
        (lambda: flex_attention(q, k[..., :3], v), ValueError, "same embedding dimension but got E=8 and E=3"),
        (lambda: flex_attention(q, k[:, :2], v[:, :2]), ValueError, "Try setting enable_gqa=True"),
        (
            lambda: flex_attention(q, k, v, block_mask=create_block_mask(causal, None, None, 20, 20)),
            ValueError,
            "larger length",
        ),
        (lambda: flex_attention(q, k, v, return_aux=AuxRequest(max_scores=True)), NotImplementedError, "max scores"),
        (
            lambda: create_block_mask(lambda q, kv: q, None, None, 4, 4),
            AssertionError,
            "Expected 4 or 5 positional args, got 2",
        ),
    ]:
        with pytest.raises(kind, match=words):
            call()


def test_causal_biases():
    q, k, v = (t.detach() for t in inputs(queries=3, keys=5))
    attend = mica.nn.functional.scaled_dot_product_attention
    right = attend(q, k, v, mica.ones(3, 5, dtype=mica.bool).tril(2))
    assert mica.allclose(attend(q, k, v, attn_mask=causal_lower_right(3, 5)), right)
    left = attend(q, k, v, mica.ones(3, 5, dtype=mica.bool).tril())
    assert mica.allclose(attend(q, k, v, causal_upper_left(3, 5)), left)


@pytest.mark.parametrize("full", [True, False])
def test_masks_of_more_batches_and_heads_than_there_are(full):
    def shifted(b, h, q, kv):
        return (q >= kv + b + h) | (kv == 0)

    mask = create_block_mask(shifted, 4, 3, 8, 8, device="cpu", BLOCK_SIZE=2, separate_full_blocks=full)
    q, k, v = (mica.randn(4, 3, 8, 5) for _ in range(3))
    whole = flex_attention(q, k, v, block_mask=mask)
    few = [t[:1, :2] for t in (q, k, v)]
    mica.testing.assert_close(flex_attention(*few, block_mask=mask), whole[:1, :2])
    mica.testing.assert_close(flex_attention(*few, lambda s, b, h, i, j: s, mask), whole[:1, :2])


def test_functions_that_mean_another_thing_for_all_scores_are_mapped():
    """Indexing twice, or adding up, takes one score; for all of them vmap does it, not a call for each."""
    mica.manual_seed(0)
    bias, calls = mica.randn(2, 3, 64, requires_grad=True), []

    def indexed_twice(score, b, h, q, kv):
        calls.append(1)
        return score + bias[b][h][q] * bias[b, h].sum()

    q, k, v = (mica.randn(2, 3, 64, 4) for _ in range(3))
    made = flex_attention(q, k, v, indexed_twice)
    assert len(calls) < 20
    scores = q @ k.transpose(-2, -1) / 2 + (bias * bias.sum(-1, keepdim=True)).unsqueeze(-1)
    wanted = scores.softmax(-1) @ v
    mica.testing.assert_close(made, wanted)
    grads = [mica.autograd.grad((out * v).sum(), bias)[0] for out in (made, wanted)]
    mica.testing.assert_close(*grads, atol=1e-4, rtol=1e-4)


def test_autocast_casts_the_inputs_alone():
    q, k, v = (mica.randn(1, 2, 16, 8) for _ in range(3))
    seen = set()

    def doubled(score, b, h, i, j):
        seen.add(score.dtype)
        return score * 2

    narrow = [t.bfloat16() for t in (q, k, v)]
    expected, expected_lse = flex_attention(*narrow, doubled, return_lse=True)
    seen.clear()
    with mica.autocast("cpu", dtype=mica.bfloat16):
        made, lse = flex_attention(q, k, v, doubled, return_lse=True)
        assert flex_attention(q.double(), k.double(), v.double()).dtype is mica.float64
    assert made.dtype is mica.bfloat16 and lse.dtype is mica.float32 and mica.bfloat16 not in seen
    assert mica.equal(made, expected) and mica.equal(lse, expected_lse)


@pytest.mark.parametrize("narrow", [mica.float8_e4m3fn, mica.float16], ids=str)
def test_keys_and_values_of_another_dtype(narrow):
    q, k, v = mica.randn(1, 2, 16, 8), *(mica.randn(1, 2, 16, 8).to(narrow) for _ in range(2))
    for score_mod in (None, lambda s, b, h, i, j: s * 2):
        made = flex_attention(q, k, v, score_mod)
        mica.testing.assert_close(made, flex_attention(q, k.float(), v.float(), score_mod))
    assert flex_attention(q.to("meta"), k.to("meta"), v.to("meta")).device.type == "meta"


def test_wrong_options_and_masks_that_are_no_truths_are_refused():
    q, k, v = (mica.randn(1, 2, 16, 8) for _ in range(3))
    with pytest.raises(ValueError, match="Invalid BACKEND value 'FOO'"):
        flex_attention(q, k, v, kernel_options={"BACKEND": "FOO"})
    with pytest.raises(RuntimeError, match="BACKEND cannot be combined"):
        flex_attention(q, k, v, kernel_options={"BACKEND": "TRITON", "FORCE_USE_FLEX_ATTENTION": True})
    with pytest.raises(AssertionError, match=r"mask.dtype must be torch.bool, got (torch|mica).float32"):
        create_block_mask(lambda b, h, i, j: (i - j).float(), 1, 1, 16, 16, device="cpu")


def test_a_mask_of_one_block_fits_all_lengths():
    from mica.nn.attention.flex_attention import _create_empty_block_mask

    q, k, v = (mica.randn(1, 2, 16, 8) for _ in range(3))
    made = flex_attention(q, k, v, block_mask=_create_empty_block_mask(q, k))
    assert mica.equal(made, flex_attention(q, k, v))


def test_masks_that_list_only_the_blocks_that_count():
    def near(b, h, q, kv):
        return (q - kv).abs() < 3

    whole = create_block_mask(near, 1, 1, 16, 16, device="cpu", BLOCK_SIZE=2)
    listed = [whole.kv_num_blocks, whole.kv_indices[..., :3], whole.full_kv_num_blocks, whole.full_kv_indices[..., :1]]
    mask = BlockMask.from_kv_blocks(*listed, BLOCK_SIZE=2, mask_mod=near, seq_lengths=(16, 16))
    assert mica.equal(mask.to_dense(), whole.to_dense()) and mica.equal(mask.q_num_blocks, whole.q_num_blocks)
    q, k, v = (mica.randn(1, 2, 16, 8) for _ in range(3))
    assert mica.equal(flex_attention(q, k, v, block_mask=mask), flex_attention(q, k, v, block_mask=whole))
    short = mask._adjust(8, 10)
    expected = flex_attention(q[:, :, :8], k[:, :, :10], v[:, :, :10], block_mask=whole._adjust(8, 10))
    assert mica.equal(flex_attention(q[:, :, :8], k[:, :, :10], v[:, :, :10], block_mask=short), expected)
