"""What the parts of torch.onnx share: its error, its modes, and what programs have registered."""

import enum

exporting = [False]
symbolics = {}  # "namespace::name" -> {version of the opset: how the operator is written}


class OnnxExporterError(RuntimeError):
    """Raised where a module uses something that ONNX cannot say."""


class TrainingMode(enum.IntEnum):
    """The mode in which a module is exported."""

    EVAL, PRESERVE, TRAINING = range(3)
