"""Attention over a sequence of which each process has a part: keys and values go round from process to process.

Within `context_parallel`, `scaled_dot_product_attention` takes parts of queries, keys and values. Each process adds up
the attention of its queries to one part of keys after the other, by the logarithms of the sums of the exponentials. In
backward keys, values and their gradients go round once more.
"""

import contextlib

import mica
from mica.nn import functional

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]


class _Options:
    """Whether parts are balanced, and how keys and values move."""

    enable_load_balance = True
    rotate_method = "allgather"


_cp_options = _Options()
_stack = []  # (mesh, balanced) of the blocks that this process is in


def set_rotate_method(rotate_method):
    """Let keys and values come together (`allgather`), or one part after the other (`alltoall`), which needs less memory."""
    if rotate_method not in ("allgather", "alltoall"):
        raise NotImplementedError(f"Context Parallel does not support using {rotate_method} for kv shards rotation")
    _cp_options.rotate_method = rotate_method


def _positions(length, size, rank, balanced, device=None):
    """Which places of the sequence a process has. Balanced: one part from the begin and one from the end, so that a causal
    mask leaves all processes the same work."""
    if not balanced:
        part = length // size
        return mica.arange(rank * part, (rank + 1) * part, device=device)
    part = length // (2 * size)
    late = 2 * size - 1 - rank
    return mica.cat([mica.arange(at * part, (at + 1) * part, device=device) for at in (rank, late)])


def _check_length(length, size, balanced):
    parts = 2 * size if balanced else size
    if length % parts:
        raise ValueError(
            f"a sequence of {length} cannot be divided among {size} processes: it must be a multiple of {parts}"
        )


# ---- the block


@contextlib.contextmanager
def context_parallel(mesh, *, buffers=None, buffer_seq_dims=None, no_restore_buffers=None):
    """In this block attention is over the sequence of all processes, and the buffers are this process's part of them."""
    buffers, dims, lost = list(buffers or ()), list(buffer_seq_dims or ()), list(no_restore_buffers or ())
    if len(buffers) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    if any(all(each is not buffer for buffer in buffers) for each in lost):
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    balanced, size = _cp_options.enable_load_balance, mesh.size()
    for buffer, dim in zip(buffers, dims, strict=True):
        _check_length(buffer.shape[dim], size, balanced)
    kept = []
    with mica.no_grad():
        for buffer, dim in zip(buffers, dims, strict=True):
            places = _positions(buffer.shape[dim], size, mesh.get_local_rank(), balanced, buffer.device)
            part = buffer.index_select(dim, places)
            kept.append(None if any(each is buffer for each in lost) else buffer.detach().clone())
            buffer.resize_(part.shape).copy_(part)
    original = functional.scaled_dot_product_attention
    _stack.append((mesh, balanced))
    functional.scaled_dot_product_attention = _attention
    try:
        yield
    finally:
        _stack.pop()
        functional.scaled_dot_product_attention = original
        with mica.no_grad():
            for buffer, whole in zip(buffers, kept, strict=True):
                if whole is not None:
                    buffer.resize_(whole.shape).copy_(whole)


@mica.no_grad()
def context_parallel_unshard(mesh, buffers, seq_dims, load_balancer=None):
    """The whole of tensors of which each process has a part along the sequence."""
    if load_balancer is not None:
        raise NotImplementedError("context_parallel_unshard(load_balancer=...) is not in Mica: the default one is used")
    size, group, made = mesh.size(), mesh.get_group(), []
    for buffer, dim in zip(buffers, seq_dims, strict=True):
        part = buffer.detach().contiguous()
        parts = [mica.empty_like(part) for _ in range(size)]
        mica.distributed.all_gather(parts, part, group=group)
        length = part.shape[dim] * size
        places = mica.cat([
            _positions(length, size, rank, _cp_options.enable_load_balance, part.device) for rank in range(size)
        ])  # fmt: skip
        made.append(mica.cat(parts, dim).index_select(dim, places.argsort()))
    return made


# ---- attention


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """scaled_dot_product_attention of this process's part of the queries with the keys and values of all."""
    if attn_mask is not None:
        raise NotImplementedError("within context_parallel attention takes no attn_mask: is_causal is there")
    if dropout_p:
        raise NotImplementedError("within context_parallel attention has no dropout")
    if enable_gqa and query.size(-3) != key.size(-3):
        times = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if query.size(-2) != key.size(-2):
        raise ValueError("within context_parallel queries and keys are parts of sequences of the same length")
    mesh, balanced = _stack[-1]
    scale = query.size(-1) ** -0.5 if scale is None else scale
    return _RingAttention.apply(query, key, value, mesh, balanced, is_causal, scale)


class _Ring:
    """The keys and values of all processes, one part after the other, beginning with this process's own."""

    def __init__(self, mesh, method):
        self.group, self.size, self.rank = mesh.get_group(), mesh.size(), mesh.get_local_rank()
        self.gathers = method == "allgather"

    def parts(self, *tensors):
        """(the process whose part it is, the part) for every process."""
        mine = mica.cat([tensor.reshape(-1) for tensor in tensors])
        sizes = [tensor.numel() for tensor in tensors]

        def apart(flat):
            return [part.view(tensor.shape) for part, tensor in zip(flat.split(sizes), tensors, strict=True)]

        yield self.rank, list(tensors)
        if self.size == 1:
            return
        if self.gathers:
            every = mine.new_empty(self.size, mine.numel())
            mica.distributed.all_gather_into_tensor(every.view(-1), mine, group=self.group)
            for step in range(1, self.size):
                owner = (self.rank - step) % self.size
                yield owner, apart(every[owner])
            return
        for step in range(1, self.size):
            mine = self.passed_on(mine)
            yield (self.rank - step) % self.size, apart(mine)

    def passed_on(self, tensor):
        """Get the part of the process before this one, and send this one's to the next."""
        got = mica.empty_like(tensor)
        to, source = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        sent = mica.distributed.isend(tensor, group=self.group, group_dst=to)
        mica.distributed.recv(got, group=self.group, group_src=source)
        sent.wait()
        return got


class _RingAttention(mica.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, mesh, balanced, is_causal, scale):
        ring = _Ring(mesh, _cp_options.rotate_method)
        length = query.size(-2) * ring.size
        _check_length(length, ring.size, balanced)
        places = [_positions(length, ring.size, rank, balanced, query.device) for rank in range(ring.size)]
        exact = mica.float32 if query.dtype.itemsize < 4 else query.dtype
        wide = query.to(exact)
        out = mica.zeros((*query.shape[:-1], value.size(-1)), dtype=exact, device=query.device)
        total = mica.full(
            query.shape[:-1], float("-inf"), dtype=exact, device=query.device
        )  # log of sums of exponentials
        for owner, (k, v) in ring.parts(key.detach(), value.detach()):
            scores = _scores(wide, k.to(exact), scale, is_causal, places[ring.rank], places[owner])
            if scores is None:
                continue
            here = scores.logsumexp(-1)
            both = mica.logaddexp(total, here)
            weights = mica.exp(scores - _finite(both)[..., None])
            out = out * mica.exp(total - _finite(both))[..., None] + weights @ v.to(exact)
            total = both
        ctx.save_for_backward(query, key, value, out, total)
        ctx.ring, ctx.places, ctx.is_causal, ctx.scale = ring, places, is_causal, scale
        return out.to(query.dtype)

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, out, total = ctx.saved_tensors
        ring, places, exact = ctx.ring, ctx.places, out.dtype
        wide, gradient = query.to(exact), gradient.to(exact)
        dots = (gradient * out).sum(-1, keepdim=True)
        of_query = mica.zeros_like(wide)
        of_parts = {}
        for owner, (k, v) in ring.parts(key, value):
            k, v = k.to(exact), v.to(exact)
            scores = _scores(wide, k, ctx.scale, ctx.is_causal, places[ring.rank], places[owner])
            if scores is None:
                of_parts[owner] = (mica.zeros_like(k), mica.zeros_like(v))
                continue
            weights = mica.exp(scores - _finite(total)[..., None])
            inner = weights * (gradient @ v.transpose(-1, -2) - dots) * ctx.scale
            of_query += inner @ k
            of_parts[owner] = (inner.transpose(-1, -2) @ wide, weights.transpose(-1, -2) @ gradient)
        of_key, of_value = _summed(ring, of_parts, key, value)
        return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype), None, None, None, None


def _finite(tensor):
    """A row whose keys are all hidden has no sum yet."""
    return tensor.masked_fill(tensor == float("-inf"), 0.0)


def _scores(query, key, scale, is_causal, mine, theirs):
    """Products of queries and keys, hidden where the key comes later; None if all are."""
    if is_causal and mine.max() < theirs.min():
        return None
    scores = query @ key.transpose(-1, -2) * scale
    return scores.masked_fill(theirs[None, :] > mine[:, None], float("-inf")) if is_causal else scores


def _summed(ring, of_parts, key, value):
    """Each process's sum of what all have found for its keys and values."""
    if ring.size == 1:
        return of_parts[ring.rank]
    every = mica.cat([mica.cat([each.reshape(-1) for each in of_parts[rank]]) for rank in range(ring.size)])
    mine = every.new_empty(every.numel() // ring.size)
    mica.distributed.reduce_scatter_tensor(mine, every, group=ring.group)
    of_key, of_value = mine.split([key.numel(), value.numel()])
    return of_key.view(key.shape), of_value.view(value.shape)
