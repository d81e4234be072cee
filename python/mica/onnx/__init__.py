"""ONNX files of modules, and the names that packages register for them."""

import enum

__all__ = ["ExportTypes", "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TensorProtoDataType", "TrainingMode",
           "export", "is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]  # fmt: skip

_exporting = [False]
_symbolics = {}


class OnnxExporterError(RuntimeError):
    """Raised where a module uses something that ONNX cannot say."""


class OperatorExportTypes(enum.IntEnum):
    """How operators without a counterpart are written: they are an error."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = range(4)


class TrainingMode(enum.IntEnum):
    """The mode in which a module is exported."""

    EVAL, PRESERVE, TRAINING = range(3)


class TensorProtoDataType(enum.IntEnum):
    """Numbers of ONNX's types of elements."""

    UNDEFINED, FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE, UINT32, UINT64 = range(
        14
    )
    COMPLEX64, COMPLEX128, BFLOAT16 = 14, 15, 16


class ExportTypes:
    """The kinds of files that torch.onnx can write."""

    PROTOBUF_FILE = "Protobuf file"


def is_in_onnx_export():
    """Whether a module is being exported."""
    return _exporting[0]


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Keep how TorchScript's exporter would write an operator; Mica's exporter writes torch's own operators."""
    _symbolics[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name, opset_version):
    _symbolics.pop((symbolic_name, opset_version), None)


def export(model, args=(), f=None, **options):
    """Write a module as an ONNX file."""
    from mica.onnx.exporter import export

    return export(model, args, f, **options)


def __getattr__(name):
    import importlib

    if name == "ONNXProgram":
        return importlib.import_module("mica.onnx.exporter").ONNXProgram
    if name in ("operators", "symbolic_helper"):
        return importlib.import_module(f"mica.onnx.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
