"""Helpers that torch's layers call in nn.functional; programs that write such layers themselves call them too."""

import warnings

from mica.nn import _reduction as _Reduction
from mica.nn.modules.utils import _list_with_default, _pair, _single, _triple

__all__ = [
    "_Reduction",
    "_get_softmax_dim",
    "_in_projection",
    "_in_projection_packed",
    "_list_with_default",
    "_mha_shape_check",
    "_pair",
    "_single",
    "_triple",
    "_unpool_output_size",
    "_verify_batch_size",
    "_verify_spatial_size",
]


def _linear(input, weight, bias=None):
    from mica.nn import functional

    return functional.linear(input, weight, bias)


def _in_projection_packed(q, k, v, w, b=None):
    """Queries, keys and values of attention by the three parts of one weight."""
    size = q.size(-1)
    if k is v:
        if q is k:  # one product
            made = _linear(q, w, b).unflatten(-1, (3, size)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
            return made[0], made[1], made[2]
        w_q, w_kv = w.split([size, size * 2])
        b_q, b_kv = (None, None) if b is None else b.split([size, size * 2])
        made = _linear(k, w_kv, b_kv).unflatten(-1, (2, size)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
        return _linear(q, w_q, b_q), made[0], made[1]
    biases = (None,) * 3 if b is None else b.chunk(3)
    return tuple(_linear(x, part, bias) for x, part, bias in zip((q, k, v), w.chunk(3), biases, strict=True))


def _in_projection(q, k, v, w_q, w_k, w_v, b_q=None, b_k=None, b_v=None):
    """Queries, keys and values of attention by a weight each."""
    wanted = q.size(-1)
    for name, weight, size in (("query", w_q, wanted), ("key", w_k, k.size(-1)), ("value", w_v, v.size(-1))):
        if weight.shape != (wanted, size):
            raise AssertionError(f"expecting {name} weights shape of {(wanted, size)}, but got {weight.shape}")
    return _linear(q, w_q, b_q), _linear(k, w_k, b_k), _linear(v, w_v, b_v)


def _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Whether the query of an attention has a batch; other ranks are refused."""
    rank = query.dim()
    if rank not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    kind = "batched (3-D)" if rank == 3 else "unbatched (2-D)"
    if key.dim() != rank or value.dim() != rank:
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {rank}-D but found {key.dim()}-D and "
            f"{value.dim()}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != rank - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {rank - 1}-D but found "
            f"{key_padding_mask.dim()}-D tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(
                f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D "
                "tensor instead"
            )
        expected = (num_heads, query.shape[0], key.shape[0])
        if rank == 2 and attn_mask.dim() == 3 and attn_mask.shape != expected:
            raise AssertionError(f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape}")
    return rank == 3


def _verify_batch_size(size):
    """Refuse to normalise a batch that has one value for each channel."""
    count = size[0]
    for each in size[2:]:
        count *= each
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


def _verify_spatial_size(size):
    """Refuse to normalise instances of one element."""
    count = 1
    for each in size[2:]:
        count *= each
    if count == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {size}")


def _get_softmax_dim(name, ndim, stacklevel):
    """The dimension that a softmax without one is along."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1


def _unpool_output_size(input, kernel_size, stride, padding, output_size):
    """The size of an unpooled image: the one that is asked for, if pooling gives the input from it."""
    sizes = input.size()
    usual = [
        (sizes[-len(kernel_size) + d] - 1) * stride[d] + kernel_size[d] - 2 * padding[d]
        for d in range(len(kernel_size))
    ]
    if output_size is None:
        return usual
    if len(output_size) == len(kernel_size) + 2:
        output_size = output_size[2:]
    if len(output_size) != len(kernel_size):
        raise ValueError(
            f"output_size should be a sequence containing {len(kernel_size)} or {len(kernel_size) + 2} elements, but it "
            f"has a length of '{len(output_size)}'"
        )
    for d, (given, each) in enumerate(zip(output_size, usual, strict=True)):
        least, most = each - stride[d], each + stride[d]
        if not least < given < most:
            raise ValueError(f'invalid output_size "{output_size}" (dim {d} must be between {least} and {most})')
    return output_size
