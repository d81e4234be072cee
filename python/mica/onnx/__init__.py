"""ONNX files of modules, and the names that packages register for them."""

import enum

from mica.onnx._state import (
    OnnxExporterError,
    TrainingMode,
    exporting,
    producer_name,  # noqa: F401 - torch has it here, not in __all__
    producer_version,  # noqa: F401
    symbolics,
)

__all__ = ["ExportTypes", "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TensorProtoDataType", "TrainingMode",
           "export", "is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]  # fmt: skip


class OperatorExportTypes(enum.IntEnum):
    """How operators without a counterpart are written: they are an error."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = range(4)


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
    return exporting[0]


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Let `export` write the operator "namespace::name" by symbolic_fn(g, *arguments), from a version of the opset on."""
    _check_name(symbolic_name)
    symbolics.setdefault(symbolic_name, {})[opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name, opset_version):
    """Take back what register_custom_op_symbolic was given for a version."""
    _check_name(symbolic_name)
    symbolics.get(symbolic_name, {}).pop(opset_version, None)


def _check_name(name):
    namespace, _, operator = name.partition("::")
    if not (operator.isidentifier() and namespace.isidentifier()):
        raise OnnxExporterError(
            f"Failed to register operator {name}. The symbolic name must match the format 'domain::name', and should start "
            "with a letter and contain only alphanumerical characters"
        )


def export(model, args=(), f=None, **options):
    """Write a module as an ONNX file."""
    from mica.onnx.exporter import export

    return export(model, args, f, **options)


def __getattr__(name):
    import importlib

    if name == "ONNXProgram":
        return importlib.import_module("mica.onnx.exporter").ONNXProgram
    if name in ("errors", "operators", "ops", "symbolic_helper", "testing", "utils", "verification"):
        return importlib.import_module(f"mica.onnx.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
