"""Attention over sequences of different lengths that lie one after another, without padding.

Sequences of one length are attended to together, by the kernels of scaled_dot_product_attention on either device, which
have the gradients. The lengths are read on the host, so that on a GPU a call waits for them.
"""

import itertools
from typing import NamedTuple

from mica import _C
from mica.nn.functional import scaled_dot_product_attention

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """What is wanted beside the output: lse is the logarithm of each row's sum of exponentials."""

    lse: bool = False


def _lengths(name, cumulative, total, most):
    """The first row and the length of each sequence, from cumulative lengths."""
    if cumulative.dim() != 1 or cumulative.numel() < 1:
        raise ValueError(f"{name} must be a 1-D tensor of N + 1 positions, got shape {tuple(cumulative.shape)}")
    if cumulative.dtype is not _C.int32:
        raise RuntimeError(f"{name} must have dtype int32, got {cumulative.dtype}")
    places = cumulative.tolist()
    lengths = [after - before for before, after in itertools.pairwise(places)]
    if places[0] != 0 or any(each < 0 for each in lengths) or places[-1] > total:
        raise ValueError(f"{name} must start at 0, never decrease and end by {total}, got {places}")
    if lengths and max(lengths) > most:
        raise ValueError(f"{name} has a sequence of {max(lengths)}, longer than the maximum that was given, {most}")
    return list(zip(places, lengths, strict=False))


def _mask(rows, columns, window, device):
    """Which keys a query sees: both sequences end together, and the window says how far it looks left and right."""
    left, right = window
    if left < 0 and right < 0:
        return None
    distance = _C.arange(columns, device=device) - (_C.arange(rows, device=device) + (columns - rows)).unsqueeze(1)
    seen = _C.ones((rows, columns), dtype=_C.bool, device=device)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen


def _rows(tensor, places, length):
    """Sequences of one length as (sequence, head, row, feature)."""
    return _C.stack([tensor.narrow(0, place, length) for place in places]).transpose(1, 2)


def _log_sums(query, key, mask, scale):
    groups = query.size(1) // key.size(1)
    scores = (query.float() * scale) @ key.float().repeat_interleave(groups, 1).transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -float("inf"))
    return scores.logsumexp(-1)


def _check(query, key, value, enable_gqa, block_table, seqused_k, window_size):
    if len(window_size) != 2:
        raise ValueError(f"window_size must have length 2, got {len(window_size)}")
    paged = block_table is not None
    expected = 4 if paged else 3
    if query.dim() != 3 or key.dim() != expected or value.dim() != expected:
        shapes = ", ".join(str(tuple(each.shape)) for each in (query, key, value))
        raise ValueError(
            f"varlen_attn takes (tokens, heads, features), and pages of them with block_table; got {shapes}"
        )
    heads, key_heads = query.size(1), key.size(-2)
    if not enable_gqa and heads != key_heads:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={key_heads}. Try "
            "setting enable_gqa=True for GQA."
        )
    if enable_gqa and (key_heads == 0 or heads % key_heads != 0):
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={key_heads}."
        )
    if paged and seqused_k is None:
        raise ValueError("block_table requires seqused_k")
    if _C.is_grad_enabled() and any(each.requires_grad for each in (query, key, value)):
        for name, given in (("seqused_k", seqused_k), ("block_table", block_table)):
            if given is not None:
                raise RuntimeError(f"{name} is an inference-only parameter.")


def _unpaged(key, value, block_table, used):
    """The keys and values of sequences whose tokens lie on pages, and each sequence's place and length."""
    page_size = key.size(1)
    tables = block_table.tolist()
    if len(tables) != len(used):
        raise ValueError(f"block_table has {len(tables)} sequences and seqused_k {len(used)}")
    pages, places, row = [], [], 0
    for table, length in zip(tables, used, strict=True):
        count = -(-length // page_size)
        if count > len(table) or any(not 0 <= page < key.size(0) for page in table[:count]):
            raise ValueError(f"block_table {table} does not name pages for {length} tokens, of {key.size(0)} pages")
        pages += table[:count]
        places.append((row, length))
        row += count * page_size
    index = _C.tensor(pages, dtype=_C.int64, device=key.device)
    return key.index_select(0, index).flatten(0, 1), value.index_select(0, index).flatten(0, 1), places


def _key_sequences(key, value, cu_seq_k, max_k, seqused_k, block_table):
    used = None if seqused_k is None else seqused_k.tolist()
    if used is not None and any(each < 0 for each in used):
        raise ValueError(f"seqused_k must not be negative, got {used}")
    if block_table is not None:
        return _unpaged(key, value, block_table, used)
    if cu_seq_k is None:
        raise ValueError("cu_seq_k may be None only with block_table")
    places = _lengths("cu_seq_k", cu_seq_k, key.size(0), max_k)
    if used is not None:
        if len(used) != len(places) or any(n > length for n, (_, length) in zip(used, places, strict=True)):
            raise ValueError(f"seqused_k {used} does not fit the sequences of cu_seq_k")
        places = [(place, n) for n, (place, _) in zip(used, places, strict=True)]
    return key, value, places


def varlen_attn(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    return_aux=None,
    scale=None,
    window_size=(-1, -1),
    enable_gqa=False,
    seqused_k=None,
    block_table=None,
    num_splits=None,
):
    """Attention of each sequence to its own keys: rows cu_seq_q[i] to cu_seq_q[i + 1] of query to those of key and value.

    query is (tokens, heads, features). A window of (-1, 0) is causal; with (w, 0) a query sees w keys before its own.
    seqused_k takes the first keys of each sequence only, block_table finds them on pages; both are for inference.
    num_splits changes nothing: what a sequence gives never depends on the others.
    """
    _check(query, key, value, enable_gqa, block_table, seqused_k, window_size)
    sequences = _lengths("cu_seq_q", cu_seq_q, query.size(0), max_q)
    key, value, key_sequences = _key_sequences(key, value, cu_seq_k, max_k, seqused_k, block_table)
    if len(sequences) != len(key_sequences):
        raise ValueError(f"there are {len(sequences)} sequences of queries and {len(key_sequences)} of keys")
    scale = query.size(-1) ** -0.5 if scale is None else scale
    groups = {}  # sequences of the same two lengths
    for number, ((_, rows), (_, columns)) in enumerate(zip(sequences, key_sequences, strict=True)):
        groups.setdefault((rows, columns), []).append(number)
    parts = [None] * len(sequences)
    with_lse = return_aux is not None and return_aux.lse
    lse = (
        _C.full((query.size(1), query.size(0)), -float("inf"), dtype=_C.float32, device=query.device)
        if with_lse
        else None
    )
    for (rows, columns), numbers in groups.items():
        if rows == 0:
            continue
        places = [sequences[number][0] for number in numbers]
        if columns == 0:
            for number, place in zip(numbers, places, strict=True):
                # It sees nothing. The sum makes the gradient zero instead of absent.
                parts[number] = query.narrow(0, place, rows).mul(0)[..., :1].expand(-1, -1, value.size(-1))
            continue
        key_places = [key_sequences[number][0] for number in numbers]
        q, k, v = _rows(query, places, rows), _rows(key, key_places, columns), _rows(value, key_places, columns)
        mask = _mask(rows, columns, window_size, query.device)
        causal = tuple(window_size) == (-1, 0) and rows == columns
        out = scaled_dot_product_attention(
            q, k, v, attn_mask=None if causal else mask, is_causal=causal, scale=scale, enable_gqa=enable_gqa
        )
        out = out.transpose(1, 2)
        if with_lse:
            sums = _log_sums(q.detach(), k.detach(), mask, scale)
            for i, place in enumerate(places):
                lse.narrow(1, place, rows).copy_(sums[i])
        for i, number in enumerate(numbers):
            parts[number] = out[i]
    rest = query.size(0) - sum(rows for _, rows in sequences)
    if rest:
        parts.append(query.new_zeros((rest, query.size(1), value.size(-1))))
    parts = [part for part in parts if part is not None]
    output = _C.cat(parts) if parts else query.new_zeros((0, query.size(1), value.size(-1)))
    return (output, lse) if with_lse else output


def varlen_attn_out(out, query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **options):
    """varlen_attn into a tensor that is there; it has no gradient."""
    if _C.is_grad_enabled() and any(each.requires_grad for each in (out, query, key, value)):
        raise RuntimeError("varlen_attn_out is for inference: its output has no gradient")
    if out.shape != (*query.shape[:2], value.size(-1)) or out.dtype is not query.dtype:
        raise RuntimeError(
            f"out must be {(*query.shape[:2], value.size(-1))} of {query.dtype}, got {tuple(out.shape)} of {out.dtype}"
        )
    result = varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **options)
    if isinstance(result, tuple):
        return out.copy_(result[0]), result[1]
    return out.copy_(result)
