"""Operations that have no counterpart in ONNX, as others that have."""

import mica
from mica.nn import functional as F


def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
    dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
    use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None,
    static_v=None, average_attn_weights=True, is_causal=False,
):  # fmt: skip
    from mica.onnx import OnnxExporterError

    if any(each is not None for each in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
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


def _normalized(x, dims, eps):
    centred = x - x.mean(dims, keepdim=True)
    return centred / mica.sqrt((centred * centred).mean(dims, keepdim=True) + eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    grouped = input.reshape(input.shape[0], num_groups, -1)
    out = _normalized(grouped, [2], eps).reshape(*input.shape)
    shape = [1, -1] + [1] * (input.dim() - 2)
    if weight is not None:
        out = out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    return group_norm(input, input.shape[1], weight, bias, eps)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    dims = [-1 - i for i in range(len(normalized_shape))]
    eps = mica.finfo(input.dtype).eps if eps is None else eps
    out = input / mica.sqrt((input * input).mean(dims, keepdim=True) + eps)
    return out if weight is None else out * weight


def glu(input, dim=-1):
    a, b = input.chunk(2, dim)
    return a * mica.sigmoid(b)


def mish(input, inplace=False):
    return input * mica.tanh(F.softplus(input))


def logsigmoid(input):
    return mica.log(mica.sigmoid(input))


def square(input):
    return input * input


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    return input / mica.clamp(mica.sqrt((input * input).sum(dim, keepdim=True)), min=eps)


DECOMPOSED = {
    function.__name__: function
    for function in (
        multi_head_attention_forward,
        group_norm,
        instance_norm,
        rms_norm,
        glu,
        mish,
        logsigmoid,
        square,
        normalize,
    )
}
