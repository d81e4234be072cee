"""ONNX's operators as functions of torch.

They compute like any other function, and `torch.onnx.export` writes each as the one node that it is. A symbolic operator has a
name, inputs and attributes that only a runtime of ONNX understands: it computes zeros.
"""

import mica
from mica.library import Library
from mica.onnx.ops.attributes import encoded
from mica.onnx.ops.implementations import attention as _attention
from mica.onnx.ops.implementations import rotary_embedding as _rotary_embedding

__all__ = ["aten_decompositions", "attention", "rotary_embedding", "symbolic", "symbolic_multi_out"]

# ONNX's numbers of dtypes.
_DTYPES = {
    1: mica.float32, 2: mica.uint8, 3: mica.int8, 4: mica.uint16, 5: mica.int16, 6: mica.int32, 7: mica.int64,
    9: mica.bool, 10: mica.float16, 11: mica.float64, 12: mica.uint32, 13: mica.uint64, 14: mica.complex64,
    15: mica.complex128, 16: mica.bfloat16, 17: mica.float8_e4m3fn, 18: mica.float8_e4m3fnuz, 19: mica.float8_e5m2,
    20: mica.float8_e5m2fnuz, 23: mica.float4_e2m1fn_x2,
}  # fmt: skip
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}

_onnx = Library("onnx", "DEF")
_onnx.define(
    "RotaryEmbedding.opset23(Tensor x, Tensor cos_cache, Tensor sin_cache, Tensor? position_ids=None, *, "
    "bool interleaved=False, SymInt num_heads=0, SymInt rotary_embedding_dim=0) -> Tensor"
)
_onnx.impl("RotaryEmbedding.opset23", _rotary_embedding, "CompositeImplicitAutograd")
_onnx.define(
    "Attention.opset23(Tensor Q, Tensor K, Tensor V, Tensor? attn_mask=None, Tensor? past_key=None, "
    "Tensor? past_value=None, *, bool is_causal=False, SymInt kv_num_heads=0, SymInt q_num_heads=0, "
    "SymInt qk_matmul_output_mode=0, float? scale=None, float softcap=0., SymInt? softmax_precision=None) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_onnx.impl("Attention.opset23", _attention, "CompositeImplicitAutograd")

_LISTS = (
    "str[] attr_keys, str[] attr_types, int[][] attr_pos, int[] attr_ints, float[] attr_floats, str[] attr_strs, "
    'str[] metadata_props_keys, str[] metadata_props_values, str domain="", int? version=None'
)
_symbolic = Library("onnx_symbolic", "DEF")
_symbolic.define(f"_symbolic(Tensor?[] inputs, str op_type, int onnx_dtype, *, SymInt[] shape, {_LISTS}) -> Tensor")
_symbolic.define(
    f"_symbolic_multi_out(Tensor?[] inputs, str op_type, int[] onnx_dtypes, *, SymInt[][] shapes, {_LISTS}) -> Tensor[]"
)


def _dtype(number):
    if number not in _DTYPES:
        raise RuntimeError(f"{number} is invalid as an ONNX data type. Valid values are {list(_DTYPES)}")
    return _DTYPES[number]


def _zeros(inputs, number, shape):
    device = next((each.device for each in inputs if each is not None), None)
    return mica.zeros(shape, dtype=_dtype(number), device=device)


def _one(inputs, op_type, onnx_dtype, *, shape, **rest):
    return _zeros(inputs, onnx_dtype, shape)


def _several(inputs, op_type, onnx_dtypes, *, shapes, **rest):
    if len(shapes) != len(onnx_dtypes):
        raise RuntimeError(f"Number of shapes ({len(shapes)}) must match number of dtypes ({len(onnx_dtypes)})")
    return [_zeros(inputs, number, shape) for number, shape in zip(onnx_dtypes, shapes, strict=True)]


_symbolic.impl("_symbolic", _one, "CompositeExplicitAutograd")
_symbolic.impl("_symbolic_multi_out", _several, "CompositeExplicitAutograd")


def aten_decompositions():
    """The decompositions of ONNX's own operators, for programs that shall not contain them."""
    return {
        mica.ops.onnx.RotaryEmbedding.opset23: _rotary_embedding,
        mica.ops.onnx.Attention.opset23: _attention,
    }


def _arguments(domain_op, attrs, version, metadata_props):
    domain, separator, op_type = domain_op.partition("::")
    if not separator:
        domain, op_type = "", domain_op
    properties = metadata_props or {}
    return op_type, {
        **encoded(attrs or {}), "metadata_props_keys": list(properties), "domain": domain, "version": version,
        "metadata_props_values": list(properties.values()),
    }  # fmt: skip


def _number(dtype):
    return dtype if isinstance(dtype, int) else _NUMBERS[dtype]


def symbolic(domain_op, /, inputs, attrs=None, *, dtype, shape, version=None, metadata_props=None):
    """An operator of a name, "domain::Name", with one result of this dtype (or ONNX's number of one) and shape."""
    op_type, rest = _arguments(domain_op, attrs, version, metadata_props)
    return mica.ops.onnx_symbolic._symbolic(list(inputs), op_type, _number(dtype), shape=list(shape), **rest)


def symbolic_multi_out(domain_op, /, inputs, attrs=None, *, dtypes, shapes, version=None, metadata_props=None):
    """An operator of a name, "domain::Name", with several results."""
    op_type, rest = _arguments(domain_op, attrs, version, metadata_props)
    numbers, shapes = [_number(dtype) for dtype in dtypes], [list(shape) for shape in shapes]
    return mica.ops.onnx_symbolic._symbolic_multi_out(list(inputs), op_type, numbers, shapes=shapes, **rest)


def rotary_embedding(X, cos_cache, sin_cache, position_ids=None, *, interleaved=False, num_heads=0, rotary_embedding_dim=0):  # fmt: skip
    """Vectors of heads, turned by the angles of their positions (RotaryEmbedding of opset 23).

    X is (batch, heads, length, size), or (batch, length, heads * size) with num_heads. The tables hold a row for each position,
    or with no position_ids the rows of each example. The first `rotary_embedding_dim` numbers are turned, 0 means all: halves
    with each other, or neighbours if interleaved.
    """
    return mica.ops.onnx.RotaryEmbedding.opset23(
        X, cos_cache, sin_cache, position_ids, interleaved=interleaved, num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip


def attention(
    Q, K, V, attn_mask=None, past_key=None, past_value=None, *, is_causal=False, kv_num_heads=0, q_num_heads=0,
    qk_matmul_output_mode=0, scale=None, softcap=0.0, softmax_precision=None,
):  # fmt: skip
    """Attention of opset 23: the result, the keys and the values with those of the past before them, and the scores.

    Tensors are (batch, heads, length, size), or (batch, length, heads * size) with both numbers of heads. The scores are shown as
    qk_matmul_output_mode says: scaled (0), with the mask (1), capped (2), or after the softmax (3).
    """
    return mica.ops.onnx.Attention.opset23(
        Q, K, V, attn_mask, past_key, past_value, is_causal=is_causal, kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads, qk_matmul_output_mode=qk_matmul_output_mode, scale=scale, softcap=softcap,
        softmax_precision=softmax_precision,
    )  # fmt: skip
