"""Layers of float32 whose weights have been rounded to numbers that integers with a scale can represent.

A reference layer keeps its float weight and the numbers that quantize it. Each call quantizes the weight, turns it back into
float32 and computes with it. Backends read from such a layer what they are to make of it.
"""

from mica.ao.nn.quantized.reference.layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Embedding,
    EmbeddingBag,
    Linear,
)
from mica.ao.nn.quantized.reference.recurrent import GRU, LSTM, GRUCell, LSTMCell, RNNCell

__all__ = [
    "GRU",
    "LSTM",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Embedding",
    "EmbeddingBag",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "RNNCell",
]  # fmt: skip
