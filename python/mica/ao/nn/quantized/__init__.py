"""Modules that take and return quantized tensors."""

from mica.ao.nn.quantized import functional
from mica.ao.nn.quantized.activations import (
    ELU,
    BatchNorm2d,
    BatchNorm3d,
    Dropout,
    GroupNorm,
    Hardswish,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LeakyReLU,
    MaxPool2d,
    PReLU,
    ReLU6,
    Sigmoid,
    Softmax,
)
from mica.ao.nn.quantized.embeddings import Embedding, EmbeddingBag
from mica.ao.nn.quantized.functional_modules import (
    DeQuantize,
    FloatFunctional,
    FXFloatFunctional,
    QFunctional,
    Quantize,
)
from mica.ao.nn.quantized.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Linear,
)

__all__ = [
    "ELU",
    "LSTM",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "Dropout",
    "Embedding",
    "EmbeddingBag",
    "FXFloatFunctional",
    "FloatFunctional",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MaxPool2d",
    "MultiheadAttention",
    "PReLU",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "Sigmoid",
    "Softmax",
    "functional",
]  # fmt: skip

from mica.ao.nn.quantized import dynamic  # noqa: F401 - it needs what stands above


def __getattr__(name):
    """LSTM and MultiheadAttention stand on their quantizable forms, which need this package."""
    if name in ("LSTM", "MultiheadAttention"):
        from mica.ao.nn.quantized import lstm_attention

        return getattr(lstm_attention, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
