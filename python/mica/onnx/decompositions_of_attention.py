"""Attention as operations that have a counterpart in ONNX."""

import mica
from mica.nn import functional as F
from mica.onnx._state import OnnxExporterError


def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
    dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
    use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None,
    static_v=None, average_attn_weights=True, is_causal=False,
):  # fmt: skip
    if add_zero_attn or [each for each in (bias_k, bias_v, static_k, static_v) if each is not None]:
        raise OnnxExporterError("attention with biases of keys or static keys is not written")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    single = query.dim() == 2
    if single:
        query, key, value = (each.unsqueeze(1) for each in (query, key, value))
    length, batch, width = query.shape

    def heads(x, weight, bias):
        return F.linear(x, weight, bias).reshape(x.shape[0], batch, num_heads, width // num_heads).permute(1, 2, 0, 3)

    q, k, v = (heads(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    scores = mica.matmul(q, k.transpose(2, 3)) * (width // num_heads) ** -0.5
    for mask, shape in ((attn_mask, None), (key_padding_mask, (batch, 1, 1, -1))):
        if mask is None:
            continue
        mask = mask if shape is None else mask.reshape(shape)
        if mask.dim() == 3:
            mask = mask.reshape(batch, num_heads, *mask.shape[1:])
        scores = scores.masked_fill(mask, -mica.inf) if mask.dtype == mica.bool else scores + mask
    attention = mica.softmax(scores, -1)
    out = mica.matmul(attention, v).permute(2, 0, 1, 3).reshape(length, batch, width)
    out = F.linear(out, out_proj_weight, out_proj_bias)
    if average_attn_weights and need_weights:
        attention = attention.mean(1)
    if single:
        out, attention = out.squeeze(1), attention.squeeze(0)
    return out, attention if need_weights else None


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    if dropout_p:
        raise OnnxExporterError("attention that drops weights is not written: export in eval mode")
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    scores = mica.matmul(query, key.transpose(-2, -1)) * (query.shape[-1] ** -0.5 if scale is None else float(scale))
    if is_causal:
        attn_mask = mica.ones(query.shape[-2], key.shape[-2], dtype=mica.bool).tril()
    if attn_mask is not None and attn_mask.dtype == mica.bool:
        scores = mica.where(attn_mask, scores, -mica.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return mica.matmul(mica.softmax(scores, -1), value)
