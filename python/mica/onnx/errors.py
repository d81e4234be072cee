"""The errors of torch.onnx, by the module that torch has them in."""

from mica.onnx._state import OnnxExporterError, UnsupportedOperatorError

__all__ = ["OnnxExporterError", "UnsupportedOperatorError"]
