"""Multi-head attention with torch's arguments: the checks that torch makes as assertions, then one operation."""

from mica import _C

__all__ = ["multi_head_attention_forward"]


def _assert(condition, message):
    if not condition:
        raise AssertionError(message)


def _none_or_dtype(input):
    return None if input is None else input.dtype


def _check_key_padding_mask(key_padding_mask, src_len, bsz):
    """Refuse a mask of padding that has not one row for each sequence and one column for each key."""
    for dim, expected in enumerate((bsz, src_len)):
        size = key_padding_mask.shape[dim]
        if size != expected:
            raise AssertionError(f"Expected key_padded_mask.shape[{dim}] to be {expected}, but got {size}")


def _canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    """A mask of bools as one that is added to scores: minus infinity where it is true."""
    if mask is None:
        return None
    _assert(
        mask.dtype == _C.bool or mask.is_floating_point(),
        f"only bool and floating types of {mask_name} are supported",
    )
    return _C._nn_functional._canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other)


def _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads):
    dims = query.dim()
    _assert(dims in (2, 3), f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor")
    which = "For batched (3-D) `query`" if dims == 3 else "For unbatched (2-D) `query`"
    _assert(
        key.dim() == dims and value.dim() == dims,
        f"{which}, expected `key` and `value` to be {dims}-D but found {key.dim()}-D and {value.dim()}-D tensors "
        "respectively",
    )
    if key_padding_mask is not None:
        _assert(
            key_padding_mask.dim() == dims - 1,
            f"{which}, expected `key_padding_mask` to be `None` or {dims - 1}-D but found "
            f"{key_padding_mask.dim()}-D tensor instead",
        )
    if attn_mask is not None:
        _assert(
            attn_mask.dim() in (2, 3),
            f"{which}, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead",
        )
        expected = (num_heads, query.shape[0], key.shape[0])
        if dims == 2 and attn_mask.dim() == 3:
            _assert(
                attn_mask.shape == expected, f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape}"
            )
    return dims == 3


def _check_projections(query, key, value, in_proj_weight, separate, bias):
    if in_proj_weight is None and separate is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    if separate is None:
        _assert(key.shape == value.shape, f"key shape {key.shape} does not match value shape {value.shape}")
        return
    _assert(
        key.shape[:-1] == value.shape[:-1],
        f"key's sequence and batch dims {key.shape[:-1]} do not match value's {value.shape[:-1]}",
    )
    rows = query.shape[-1]
    for name, input, weight in zip(("query", "key", "value"), (query, key, value), separate, strict=True):
        _assert(weight is not None, f"use_separate_proj_weight is True but {name[0]}_proj_weight is None")
        expected = (rows, input.shape[-1])
        _assert(weight.shape == expected, f"expecting {name} weights shape of {expected}, but got {weight.shape}")
    if bias is not None:
        _assert(bias.shape == (3 * rows,), f"expecting query bias shape of {(rows,)}, but got {(bias.shape[0] // 3,)}")


def _check_static(name, static, batch, heads, width):
    if static is None:
        return
    for dim, expected in ((0, batch * heads), (2, width)):
        _assert(static.size(dim) == expected, f"expecting {name}.size({dim}) of {expected}, but got {static.size(dim)}")


def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    """Attention in several subspaces at once: projections, attention head by head, a projection of what they give.

    Sequences are (length, batch, features) or (length, features). The second result holds the weights, averaged over
    heads unless told otherwise, or is None without `need_weights`.
    """
    tensors = (
        query, key, value, in_proj_weight, in_proj_bias, bias_k, bias_v, out_proj_weight, out_proj_bias,
    )  # fmt: skip
    if _C._has_torch_function(tensors):
        return _C._handle_torch_function(
            multi_head_attention_forward, tensors, query, key, value, embed_dim_to_check, num_heads, in_proj_weight,
            in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask, is_causal=is_causal,
            use_separate_proj_weight=use_separate_proj_weight, q_proj_weight=q_proj_weight,
            k_proj_weight=k_proj_weight, v_proj_weight=v_proj_weight, static_k=static_k, static_v=static_v,
            average_attn_weights=average_attn_weights,
        )  # fmt: skip
    _mha_shape_check(query, key, value, key_padding_mask, attn_mask, num_heads)
    for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        _assert(
            mask is None or mask.dtype == _C.bool or mask.is_floating_point(),
            f"only bool and floating types of {name} are supported",
        )
    embed_dim = query.shape[-1]
    _assert(
        embed_dim == embed_dim_to_check,
        f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}",
    )
    _assert(embed_dim % num_heads == 0, f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    _check_projections(query, key, value, in_proj_weight, separate, in_proj_bias)
    batch = query.shape[1] if query.dim() == 3 else 1
    if bias_k is not None and bias_v is not None:
        _assert(static_k is None, "bias cannot be added to static key.")
        _assert(static_v is None, "bias cannot be added to static value.")
    else:
        _assert(bias_k is None, "bias_k is set but bias_v is None")
        _assert(bias_v is None, "bias_v is set but bias_k is None")
    _check_static("static_k", static_k, batch, num_heads, embed_dim // num_heads)
    _check_static("static_v", static_v, batch, num_heads, embed_dim // num_heads)
    if key_padding_mask is not None:
        keys = key.shape[0] if static_k is None else static_k.size(1)
        expected = (batch, keys) if query.dim() == 3 else (keys,)
        for dim, size in enumerate(expected):
            _assert(
                key_padding_mask.shape[dim] == size,
                f"Expected key_padded_mask.shape[{dim}] to be {size}, but got {key_padding_mask.shape[dim]}",
            )
    return tuple(
        _C._nn_functional._multi_head_attention_forward(
            query, key, value, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p,
            out_proj_weight, out_proj_bias, training, key_padding_mask, need_weights, attn_mask,
            use_separate_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, static_k, static_v,
            average_attn_weights, is_causal,
        )
    )  # fmt: skip
