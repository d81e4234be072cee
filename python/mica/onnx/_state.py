"""What the parts of torch.onnx share: its error, its modes, and what programs have registered."""

import enum

from mica.version import __version__

producer_name = "mica"  # as files name who wrote them
producer_version = __version__
exporting = [False]
writers = []  # the graph that is written, if one is
symbolics = {}  # "namespace::name" -> {version of the opset: how the operator is written}


class OnnxExporterError(RuntimeError):
    """Raised where a module uses something that ONNX cannot say."""


class UnsupportedOperatorError(OnnxExporterError):
    """Raised where a module uses an operation that is not written."""

    def __init__(self, name, version, supported_version=None):
        words = f"Exporting the operator '{name}' to ONNX opset version {version} is not supported"
        if supported_version is not None:
            words += (
                f". Support for this operator was added in version {supported_version}, try exporting with this version"
            )
        super().__init__(words)


class TrainingMode(enum.IntEnum):
    """The mode in which a module is exported."""

    EVAL, PRESERVE, TRAINING = range(3)
