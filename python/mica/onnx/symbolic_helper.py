"""Tools of functions that say how an operator is written (torch.onnx.register_custom_op_symbolic)."""

import functools

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


_READ = {"i": int, "b": bool, "f": float, "s": str}


def _parsed(kind, value):
    """An argument as the kind that a descriptor names: a value of the graph, a number, text, or a list of them."""
    if value is None or kind in ("v", "none", "t"):
        return value
    if isinstance(value, str) and kind != "s":
        raise RuntimeError(f"Expected a constant for an argument of kind '{kind}', but got a value of the graph")
    if kind.endswith("s") and kind != "s":
        return [_READ[kind[:-1]](each) for each in value]
    return _READ[kind](value)


def parse_args(*arg_descriptors):
    """Decorates a function that writes an operator: its arguments are read as the kinds that the descriptors name.

    "v" is a value of the graph, "i", "f", "b" and "s" are constants, "is" and "fs" lists of them, "none" is not used.
    """

    def decorate(function):
        @functools.wraps(function)
        def parsed(g, *args, **kwargs):
            read = [_parsed(kind, each) for kind, each in zip(arg_descriptors, args, strict=False)]
            return function(g, *read, *args[len(read) :], **kwargs)

        return parsed

    return decorate


def quantized_args(*arg_q_descriptors, **options):
    raise NotImplementedError(
        "torch.onnx.symbolic_helper.quantized_args: Mica's exporter writes no quantized operators"
    )


def _unimplemented(op, msg, value=None):
    raise RuntimeError(f"ONNX export of operator {op}, {msg}")
