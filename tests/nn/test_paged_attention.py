"""Paged attention: keys and values of sequences of different lengths in one cache."""

import mica
import pytest
from mica.nn.attention.experimental._paged_attention import PagedAttention
from mica.nn.attention.flex_attention import create_block_mask, flex_attention

PAGES, PAGE, HEADS, LENGTH, SIZE = 12, 16, 2, 48, 8


def causal(b, h, q, kv):
    return q >= kv


def distance(score, b, h, q, kv):
    return score + (q - kv) * 0.1


def biased(score, b, h, q, kv):
    return score + mica.linspace(-1, 1, 2 * LENGTH)[q - kv + LENGTH - 1]


def filled(lengths, values=SIZE):
    """A table with so many tokens of each sequence, the keys and values, and the caches that hold them."""
    mica.manual_seed(0)
    batch = len(lengths)
    k, v = mica.randn(batch, HEADS, LENGTH, SIZE), mica.randn(batch, HEADS, LENGTH, values)
    paged = PagedAttention(PAGES, PAGE, batch, device="cpu")
    # Sequences grow in turns, so that their pages lie among one another.
    for tokens in range(PAGE, LENGTH + 1, PAGE):
        for i, length in enumerate(lengths):
            paged.reserve(mica.tensor(i), mica.tensor(min(tokens, length)))
    caches = [mica.zeros(1, HEADS, PAGES * PAGE, t.shape[-1]) for t in (k, v)]
    for i, length in enumerate(lengths):
        row, places = mica.tensor([i]), mica.arange(length).unsqueeze(0)
        paged.assign(row, places, k[i : i + 1, :, :length], v[i : i + 1, :, :length], *caches)
    return paged, k, v, caches


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("score_mod", [None, distance, biased])
def test_attention_over_pages_is_attention_over_sequences(score_mod, compiled):
    paged, k, v, caches = filled([LENGTH, LENGTH, LENGTH])
    q = mica.randn(3, HEADS, LENGTH, SIZE)
    mask = create_block_mask(causal, 3, 1, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=PAGE)
    attention = mica.compile(flex_attention) if compiled else flex_attention
    expected = flex_attention(q, k, v, score_mod, mask)
    converted = paged.convert_logical_block_mask(mask)
    assert converted.seq_lengths == (LENGTH, PAGES * PAGE)
    made = attention(q, *caches, paged.get_score_mod(score_mod), converted)
    mica.testing.assert_close(made, expected)


def test_lengths_and_other_orders_of_sequences():
    lengths = mica.tensor([20, 48, 33])
    paged, k, v, caches = filled(lengths.tolist(), values=5)
    q, rows = mica.randn(2, HEADS, 1, SIZE), mica.tensor([2, 0])

    def all_tokens(b, h, q, kv):
        return kv >= 0

    sizes = {"device": "cpu", "BLOCK_SIZE": (1, PAGE), "separate_full_blocks": False}
    mask = create_block_mask(all_tokens, 2, 1, 1, LENGTH, **sizes)
    converted = paged.convert_logical_block_mask(mask, batch_idx=rows)
    converted.mask_mod = lambda b, h, i, kv: paged.get_mask_mod(all_tokens, lengths)(rows[b], h, i, kv)
    made = flex_attention(q, *caches, block_mask=converted)
    for i, row in enumerate(rows.tolist()):
        known = slice(row, row + 1), slice(None), slice(int(lengths[row]))
        expected = mica.nn.functional.scaled_dot_product_attention(q[i : i + 1], k[known], v[known])
        mica.testing.assert_close(made[i : i + 1], expected)


def test_pages_are_reserved_and_taken_back():
    paged = PagedAttention(4, PAGE, 2, device="cpu")
    paged.reserve(mica.tensor(0), mica.tensor(PAGE + 1))
    paged.reserve(mica.tensor(0), mica.tensor(3))  # there is room already
    paged.reserve(mica.tensor(1), mica.tensor(1))
    assert paged.capacity.tolist() == [2 * PAGE, PAGE]
    assert sorted(paged.page_table[paged.page_table >= 0].tolist() + paged.empty_pages) == [0, 1, 2, 3]
    with pytest.raises(AssertionError, match="requested 2 pages but there are only 1 empty pages"):
        paged.reserve(mica.tensor(1), mica.tensor(2 * PAGE + 1))
    paged.erase(mica.tensor([0]))
    assert paged.capacity.tolist() == [0, PAGE] and len(paged.empty_pages) == 3
    assert (paged.page_table[0] == -1).all() and (paged.physical_to_logical[0] == -1).all()
    paged.reserve(mica.tensor([1]), mica.tensor([2 * PAGE + 1]))
    assert paged.capacity.tolist() == [0, 3 * PAGE]
    paged.reserve(mica.tensor(0), mica.tensor(1))
    paged.erase(mica.tensor([0, 1]))
    assert sorted(paged.empty_pages) == [0, 1, 2, 3] and (paged.page_table == -1).all()


def test_what_does_not_fit_is_refused():
    paged, k, v, caches = filled([LENGTH])
    row, places = mica.tensor([0]), mica.arange(LENGTH).unsqueeze(0)
    for wrong, words in [
        ((row, places, k.clone().requires_grad_(), v), "val must not require gradient"),
        ((mica.tensor([0, 0]), places, k, v), "batch_idx have the same batch size"),
        ((row, places, k[:, :1], v), "same number of heads"),
        ((row, places[:, :3], k, v), "same length"),
        ((row, places, k[..., :3], v), "k_val and k_cache has the same hidden dim"),
        ((row, places, k, v[..., :3]), "v_val and v_cache has the same hidden dim"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            paged.assign(*wrong, *caches)
    mask = create_block_mask(causal, 1, 1, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=8)
    with pytest.raises(RuntimeError, match="same column block size as page_size"):
        paged.convert_logical_block_mask(mask)
