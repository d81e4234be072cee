"""Recurrent reference layers: every weight has numbers of its own, biases stay as they are."""

from mica import nn
from mica.ao.nn.quantized.reference.weights import check_keys, keep_numbers, rounded, rounded_integers

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "RNNCell"]


class _Cell:
    """What cells share. The float cell's class follows this one."""

    _NAMES = ("weight_ih", "weight_hh")

    def _keep(self, weight_qparams_dict, device):
        check_keys(self, weight_qparams_dict, self._NAMES)
        self.is_decomposed = bool((weight_qparams_dict or {}).get("is_decomposed", False))
        for name in self._NAMES:
            keep_numbers(self, name, weight_qparams_dict and weight_qparams_dict[name], device)

    def get_quantized_weight_ih(self):
        """The weight of the input, as a quantized tensor."""
        return rounded_integers(self, "weight_ih")

    def get_quantized_weight_hh(self):
        """The weight of the state, as a quantized tensor."""
        return rounded_integers(self, "weight_hh")

    def get_weight_ih(self):
        """The weight of the input that the cell computes with: rounded, in float32."""
        return rounded(self, "weight_ih")

    def get_weight_hh(self):
        """The weight of the state that the cell computes with: rounded, in float32."""
        return rounded(self, "weight_hh")

    def _weights(self):
        return self.get_weight_ih(), self.get_weight_hh(), self.bias_ih, self.bias_hh

    @classmethod
    def from_float(cls, mod, weight_qparams_dict, use_precomputed_fake_quant=False):
        """The reference form of a float cell: its own parameters, with the numbers that quantize the weights."""
        more = {"nonlinearity": mod.nonlinearity} if hasattr(mod, "nonlinearity") else {}
        made = cls(
            mod.input_size, mod.hidden_size, mod.bias, **more, device=mod.weight_ih.device, dtype=mod.weight_ih.dtype,
            weight_qparams_dict=weight_qparams_dict,
        )  # fmt: skip
        made._parameters.update(mod._parameters)
        return made

    def _get_name(self):
        return f"Quantized{type(self).__name__}(Reference)"


class RNNCell(_Cell, nn.RNNCell):
    """nn.RNNCell with rounded weights."""

    def __init__(
        self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None, weight_qparams_dict=None
    ):
        super().__init__(input_size, hidden_size, bias, nonlinearity, device, dtype)
        self._keep(weight_qparams_dict, device)


class _Gated(_Cell):
    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, weight_qparams_dict=None):
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self._keep(weight_qparams_dict, device)


class LSTMCell(_Gated, nn.LSTMCell):
    """nn.LSTMCell with rounded weights."""


class GRUCell(_Gated, nn.GRUCell):
    """nn.GRUCell with rounded weights."""


class _Layers:
    """What whole recurrent layers share. The float layer's class follows this one."""

    def __init__(self, *args, weight_qparams_dict=None, **kwargs):
        super().__init__(*args, **kwargs)
        names = [name for name in self._flat_weights_names if name.startswith("weight")]
        check_keys(self, weight_qparams_dict, names)
        self.is_decomposed = bool((weight_qparams_dict or {}).get("is_decomposed", False))
        for name in names:
            keep_numbers(self, name, weight_qparams_dict and weight_qparams_dict[name], kwargs.get("device"))

    def get_quantized_weight_bias_dict(self):
        """The weights as quantized tensors and the biases as they are, by name."""
        return {
            name: rounded_integers(self, name) if name.startswith("weight") else getattr(self, name)
            for name in self._flat_weights_names
        }

    def get_flat_weights(self):
        """The weights and biases that the layer computes with, one after the other: rounded, in float32."""
        return [
            rounded(self, name) if name.startswith("weight") else getattr(self, name)
            for name in self._flat_weights_names
        ]

    def _weights(self):
        return self.get_flat_weights()

    @classmethod
    def from_float(cls, mod, weight_qparams_dict):
        """The reference form of a float layer: its own parameters, with the numbers that quantize the weights."""
        first = mod._flat_weights[0]
        made = cls(
            mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first, mod.dropout, mod.bidirectional,
            device=first.device, dtype=first.dtype, weight_qparams_dict=weight_qparams_dict, **cls._more(mod),
        )  # fmt: skip
        made.train(mod.training)
        for name in mod._flat_weights_names:
            setattr(made, name, getattr(mod, name))
        return made

    @staticmethod
    def _more(mod):
        return {}

    def _get_name(self):
        return f"Quantized{type(self).__name__}(Reference)"


class LSTM(_Layers, nn.LSTM):
    """nn.LSTM with rounded weights."""

    @staticmethod
    def _more(mod):
        return {"proj_size": mod.proj_size}


class GRU(_Layers, nn.GRU):
    """nn.GRU with rounded weights."""
