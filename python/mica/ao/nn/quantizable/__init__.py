"""Modules taken apart into what can be observed: what prepare makes of LSTM and MultiheadAttention."""

from mica.ao.nn.quantizable.attention import MultiheadAttention
from mica.ao.nn.quantizable.rnn import LSTM, LSTMCell

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]
