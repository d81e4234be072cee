"""Observers: they watch the numbers that pass and say which scale and zero point fit them."""

import functools

from mica import _C
from mica._functions import quantization_schemes as schemes
from mica.nn import Module

_RANGES = {_C.quint8: (0, 255), _C.qint8: (-128, 127), _C.qint32: (-(2**31), 2**31 - 1)}


def _with_arguments(cls, **kwargs):
    return functools.partial(cls, **kwargs)


class ObserverBase(Module):
    """What observers share."""

    def __init__(self, dtype=_C.quint8):
        super().__init__()
        self.dtype = dtype

    with_args = classmethod(_with_arguments)


class MinMaxObserver(ObserverBase):
    """Keeps the least and the greatest number that it has seen."""

    def __init__(
        self,
        dtype=_C.quint8,
        qscheme=schemes.per_tensor_affine,
        reduce_range=False,
        quant_min=None,
        quant_max=None,
        eps=1.1920928955078125e-07,
    ):
        super().__init__(dtype)
        low, high = _RANGES[dtype]
        if reduce_range:
            low, high = low // 2, high // 2
        self.qscheme, self.eps = qscheme, eps
        self.quant_min = low if quant_min is None else quant_min
        self.quant_max = high if quant_max is None else quant_max
        if self.quant_min >= self.quant_max:
            raise ValueError(f"quant_min must be less than quant_max, but they are {self.quant_min}, {self.quant_max}")
        self.register_buffer("min_val", _C.tensor(float("inf")))
        self.register_buffer("max_val", _C.tensor(float("-inf")))

    def _extremes(self, x):
        return x.min(), x.max()

    def _merge(self, low, high):
        if self.min_val.shape != low.shape:
            self.min_val, self.max_val = low.clone(), high.clone()
            return
        self.min_val, self.max_val = _C.minimum(self.min_val, low), _C.maximum(self.max_val, high)

    def forward(self, x):
        if x.numel():
            self._merge(*self._extremes(x.detach().float()))
        return x

    def calculate_qparams(self):
        """(scale, zero_point) for what has been seen."""
        if bool((self.min_val > self.max_val).any()):
            raise RuntimeError("an observer was asked for a scale before it has seen numbers: run the model first")
        low, high = self.min_val.clamp_max(0), self.max_val.clamp_min(0)
        if self.qscheme in (schemes.per_tensor_symmetric, schemes.per_channel_symmetric):
            scale = (_C.maximum(-low, high) / ((self.quant_max - self.quant_min) / 2)).clamp_min(self.eps)
            middle = 128 if self.dtype is _C.quint8 else 0
            return scale, _C.full_like(scale, middle, dtype=_C.int64)
        scale = ((high - low) / (self.quant_max - self.quant_min)).clamp_min(self.eps)
        zero = (self.quant_min - (low / scale).round()).clamp(self.quant_min, self.quant_max)
        return scale, zero.to(_C.int64)

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Moves the bounds towards those of each batch."""

    def __init__(self, averaging_constant=0.01, **kwargs):
        super().__init__(**kwargs)
        self.averaging_constant = averaging_constant

    def _merge(self, low, high):
        if self.min_val.shape != low.shape or bool((self.min_val > self.max_val).any()):
            self.min_val, self.max_val = low.clone(), high.clone()
            return
        self.min_val = self.min_val + self.averaging_constant * (low - self.min_val)
        self.max_val = self.max_val + self.averaging_constant * (high - self.max_val)


class PerChannelMinMaxObserver(MinMaxObserver):
    """Keeps bounds for each slice along `ch_axis`."""

    def __init__(self, ch_axis=0, dtype=_C.qint8, qscheme=schemes.per_channel_affine, **kwargs):
        super().__init__(dtype=dtype, qscheme=qscheme, **kwargs)
        self.ch_axis = ch_axis

    def _extremes(self, x):
        flat = x.movedim(self.ch_axis, 0).flatten(1) if x.dim() > 1 else x.unsqueeze(1)
        return flat.amin(1), flat.amax(1)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Moves the bounds of each slice towards those of each batch."""

    def __init__(self, averaging_constant=0.01, **kwargs):
        super().__init__(**kwargs)
        self.averaging_constant = averaging_constant

    _merge = MovingAverageMinMaxObserver._merge


class PlaceholderObserver(ObserverBase):
    """Watches nothing: it only says which dtype is wanted."""

    def forward(self, x):
        return x


class FakeQuantize(Module):
    """Rounds numbers as quantization will, and lets gradients pass: for training."""

    def __init__(self, observer=MovingAverageMinMaxObserver, quant_min=None, quant_max=None, **kwargs):
        super().__init__()
        self.activation_post_process = observer(quant_min=quant_min, quant_max=quant_max, **kwargs)
        self.fake_quant_enabled = self.observer_enabled = True

    with_args = classmethod(_with_arguments)

    def enable_fake_quant(self, enabled=True):
        """Turn the rounding on or off."""
        self.fake_quant_enabled = enabled
        return self

    def disable_fake_quant(self):
        """Turn the rounding off."""
        return self.enable_fake_quant(False)

    def enable_observer(self, enabled=True):
        """Let the observer watch, or not."""
        self.observer_enabled = enabled

    def disable_observer(self):
        """Keep the bounds as they are."""
        self.enable_observer(False)

    dtype = property(lambda self: self.activation_post_process.dtype)
    qscheme = property(lambda self: self.activation_post_process.qscheme)
    ch_axis = property(lambda self: self.activation_post_process.ch_axis)

    def calculate_qparams(self):
        """(scale, zero_point) of the observer."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, x):
        observer = self.activation_post_process
        if self.observer_enabled:
            observer(x.detach())
        if not self.fake_quant_enabled:
            return x
        scale, zero = observer.calculate_qparams()
        low, high = observer.quant_min, observer.quant_max
        if observer.qscheme in (schemes.per_channel_affine, schemes.per_channel_symmetric):
            return _C.fake_quantize_per_channel_affine(x, scale, zero, observer.ch_axis, low, high)
        return _C.fake_quantize_per_tensor_affine(x, float(scale), int(zero), low, high)


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_weight_observer = MinMaxObserver.with_args(dtype=_C.qint8, qscheme=schemes.per_tensor_symmetric)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(qscheme=schemes.per_channel_symmetric)
default_fake_quant = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver)
default_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, dtype=_C.qint8, qscheme=schemes.per_tensor_symmetric
)
