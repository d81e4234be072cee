"""LSTM and MultiheadAttention on quantized tensors: their quantizable forms with quantized parts."""

from mica import _C
from mica.ao.nn import quantizable
from mica.ao.quantization.observer import MinMaxObserver

__all__ = ["LSTM", "MultiheadAttention"]


def _converted(other, cls):
    import mica  # the flow of quantization imports the modules that it makes

    made = mica.ao.quantization.convert(other, inplace=False, remove_qconfig=True)
    made.__class__ = cls
    return made


class LSTM(quantizable.LSTM):
    """What convert makes of an observed LSTM."""

    _FLOAT_MODULE = quantizable.LSTM

    def _get_name(self):
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, *args, **kwargs):
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed LSTM module. Please, see the examples on "
            "quantizable LSTMs."
        )

    @classmethod
    def from_observed(cls, other):
        """An observed LSTM with quantized parts."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        return _converted(other, cls)


class MultiheadAttention(quantizable.MultiheadAttention):
    """What convert makes of an observed MultiheadAttention."""

    _FLOAT_MODULE = quantizable.MultiheadAttention

    def _get_name(self):
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, other):
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed MHA module. Please, see the examples on "
            "quantizable MHAs."
        )

    @classmethod
    def from_observed(cls, other):
        """An observed attention with quantized parts; the biases of keys and values are rounded, too."""
        made = _converted(other, cls)
        for name in ("bias_k", "bias_v"):
            bias = getattr(made, name)
            delattr(made, name)
            if bias is not None:
                observer = MinMaxObserver()
                # torch uses the range of the keys' bias, which is rounded by then, for the values' bias as well.
                observer(bias.detach() if name == "bias_k" else made.bias_k.dequantize())
                scale, zero_point = observer.calculate_qparams()
                bias = _C.quantize_per_tensor(bias.detach(), float(scale), int(zero_point), _C.quint8)
            setattr(made, name, bias)
        for name in ("in_proj_weight", "in_proj_bias"):
            delattr(made, name)
        return made
