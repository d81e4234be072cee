"""What ONNX's operators RotaryEmbedding and Attention of opset 23 compute, in terms of torch's."""

import math

import mica

__all__ = ["attention", "rotary_embedding"]


def _check(condition, message):
    if not condition:
        raise RuntimeError(message)


def rotary_embedding(x, cos_cache, sin_cache, position_ids=None, *, interleaved=False, num_heads=0, rotary_embedding_dim=0):  # fmt: skip
    """The first numbers of each head's vectors, turned in pairs by the angles of their positions."""
    given = x.shape
    _check(x.dim() in (3, 4), f"x must be 3D or 4D. Received shape {given}")
    batch, length = given[0], given[-2]
    if x.dim() == 3:
        _check(num_heads != 0, f"num_heads must be provided for 3D inputs. Received input tensor with shape {given}")
        x = x.reshape(batch, length, num_heads, given[2] // num_heads)
    else:
        x = x.transpose(1, 2)
    if position_ids is not None:
        _check(position_ids.dim() == 2, f"position_ids must be 2D when provided. Received shape {position_ids.shape}")
        rows, places = position_ids.shape
        _check(rows == batch, f"position_ids first dim (batch) must match x.shape[0] ({batch}). Received {rows}")
        _check(
            places == length,
            f"position_ids second dim (sequence) must match x.shape[-2] ({length}). Received {places}",
        )
    tables = 2 if position_ids is not None else 3
    _check(
        cos_cache.dim() == tables and sin_cache.dim() == tables,
        f"cos_cache/sin_cache must be {tables}D when position_ids is {'' if tables == 2 else 'not '}provided. "
        f"Received cos_cache shape {cos_cache.shape}, sin_cache shape {sin_cache.shape}",
    )
    turned_dim = rotary_embedding_dim or x.shape[-1]
    half = turned_dim // 2
    cos, sin = (cos_cache, sin_cache) if position_ids is None else (cos_cache[position_ids], sin_cache[position_ids])
    for name, table in (("cos", cos), ("sin", sin)):
        _check(
            table.shape[-1] == half,
            f"Last dimension of {name} cache ({table.shape[-1]}) should match rotary_embedding_dim/2 ({half}).",
        )
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    turned, rest = x[..., :turned_dim], x[..., turned_dim:]
    first, second = (turned[..., 0::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    turned = mica.stack([real, imaginary], -1).flatten(-2) if interleaved else mica.cat([real, imaginary], -1)
    made = mica.cat([turned, rest], -1)
    return made.reshape(given) if len(given) == 3 else made.transpose(1, 2)


def _heads(x, count):
    return x.view(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _with_mask(scores, attn_mask, is_causal):
    if is_causal:
        _check(attn_mask is None, "Cannot use both is_causal and attn_mask")
        shown = mica.ones(scores.shape[-2:], dtype=mica.bool, device=scores.device).tril()
        return scores.masked_fill(~shown, -math.inf)
    if attn_mask is None:
        return scores
    return scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == mica.bool else scores + attn_mask


# The dtypes, by ONNX's numbers, that the softmax can be computed in.
_PRECISIONS = {1: mica.float32, 10: mica.float16, 11: mica.float64, 16: mica.bfloat16}


def attention(
    Q, K, V, attn_mask=None, past_key=None, past_value=None, *, is_causal=False, kv_num_heads=0, q_num_heads=0,
    qk_matmul_output_mode=0, scale=None, softcap=0.0, softmax_precision=None,
):  # fmt: skip
    """The attention, all keys and values with those of the past, and the scores at the stage that the mode names.

    ONNX caps scores after the mask has been added, so that a capped score of a masked key is small and not zero.
    """
    _check(
        softmax_precision is None or isinstance(softmax_precision, int),
        f"softmax_precision is ONNX's number of a dtype, got {softmax_precision!r}",
    )
    is_flat = Q.dim() == 3
    if is_flat:
        _check(q_num_heads != 0 and kv_num_heads != 0, "q_num_heads and kv_num_heads must be provided for 3D inputs")
        Q, K, V = _heads(Q, q_num_heads), _heads(K, kv_num_heads), _heads(V, kv_num_heads)
    _check(Q.dim() == K.dim() == V.dim() == 4, "Q, K, and V should be 4D tensors by now")
    K = K if past_key is None else mica.cat([past_key, K], 2)
    V = V if past_value is None else mica.cat([past_value, V], 2)
    present_key, present_value = K, V
    queries, keys = Q.shape[1], K.shape[1]
    if queries != keys:
        _check(queries % keys == 0, f"q_num_heads ({queries}) must be divisible by kv_num_heads ({keys}) for GQA")
        K, V = (each.repeat_interleave(queries // keys, 1) for each in (K, V))
    root = math.sqrt(1 / math.sqrt(Q.shape[3]) if scale is None else scale)
    scores = mica.matmul(Q * root, (K * root).transpose(-2, -1))
    stages = [scores, _with_mask(scores, attn_mask, is_causal)]
    stages.append(softcap * mica.tanh(stages[1] / softcap) if softcap > 0 else stages[1])
    weights = stages[2].to(_PRECISIONS.get(softmax_precision, stages[2].dtype)).softmax(-1).to(Q.dtype)
    stages.append(weights)
    result = mica.matmul(weights, V)
    if is_flat:
        result = result.transpose(1, 2).reshape(result.shape[0], result.shape[2], -1)
    shown = stages[qk_matmul_output_mode] if 0 <= qk_matmul_output_mode < len(stages) else scores
    return result, present_key.clone(), present_value.clone(), shown
