"""Tools of functions that say how TorchScript's exporter writes an operator; they are kept, not called."""

import mica
from mica.onnx import TensorProtoDataType

cast_pytorch_to_onnx = {
    "Byte": TensorProtoDataType.UINT8, "Char": TensorProtoDataType.INT8, "Double": TensorProtoDataType.DOUBLE,
    "Float": TensorProtoDataType.FLOAT, "Half": TensorProtoDataType.FLOAT16, "Int": TensorProtoDataType.INT32,
    "Long": TensorProtoDataType.INT64, "Short": TensorProtoDataType.INT16, "Bool": TensorProtoDataType.BOOL,
    "BFloat16": TensorProtoDataType.BFLOAT16,
}  # fmt: skip
scalar_type_to_pytorch_type = [
    mica.uint8,
    mica.int8,
    mica.int16,
    mica.int32,
    mica.int64,
    mica.float16,
    mica.float32,
    mica.float64,
]


def parse_args(*arg_descriptors):
    """Decorates such a function: it stays as it is."""
    return lambda function: function


def quantized_args(*arg_q_descriptors, **options):
    """Decorates such a function: it stays as it is."""
    return lambda function: function


def _unimplemented(op, msg, value=None):
    raise RuntimeError(f"ONNX export of operator {op}, {msg}")
