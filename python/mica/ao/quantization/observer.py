"""Observers: they watch the numbers that pass and say which scale and zero point fit them."""

import functools
import warnings

from mica import _C
from mica._functions import quantization_schemes as schemes
from mica.nn import Module

_RANGES = {_C.quint8: (0, 255), _C.qint8: (-128, 127), _C.qint32: (-(2**31), 2**31 - 1)}
_RANGES |= {_C.uint8: (0, 255), _C.int8: (-128, 127), _C.int16: (-(2**15), 2**15 - 1), _C.int32: _RANGES[_C.qint32]}
_UNSIGNED = (_C.quint8, _C.uint8)
_SYMMETRIC = (schemes.per_tensor_symmetric, schemes.per_channel_symmetric)
_PER_CHANNEL = (
    schemes.per_channel_affine,
    schemes.per_channel_symmetric,
    schemes.per_channel_affine_float_qparams,
)
_LEAST_SCALE = 1.1920928955078125e-07


class _Partial(functools.partial):
    """A class or function with some of its arguments given; with_args gives more."""

    def with_args(self, **kwargs):
        return _Partial(self.func, *self.args, **{**self.keywords, **kwargs})


class ObserverBase(Module):
    """The base of observers."""

    def __init__(self, dtype=_C.quint8, is_dynamic=False):
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    @classmethod
    def with_args(cls, **kwargs):
        """A function that makes such observers with these arguments."""
        return _Partial(cls, **kwargs)

    with_callable_args = with_args

    def calculate_qparams(self, **kwargs):
        """(scale, zero_point) for what has been seen."""
        raise Exception(f"calculate_qparams should not be called for {type(self).__name__}")


class UniformQuantizationObserverBase(ObserverBase):
    """The base of observers of bounds: computes a scale and a zero point from the least and the greatest number."""

    def __init__(
        self,
        dtype=_C.quint8,
        qscheme=schemes.per_tensor_affine,
        reduce_range=False,
        quant_min=None,
        quant_max=None,
        factory_kwargs=None,
        eps=_LEAST_SCALE,
        is_dynamic=False,
        **kwargs,
    ):
        super().__init__(dtype, is_dynamic)
        assert dtype in _RANGES, f"Default Observer only works for {tuple(map(str, _RANGES))} data type, not {dtype}"
        if qscheme is schemes.per_tensor_symmetric and reduce_range and dtype in _UNSIGNED:
            raise NotImplementedError(f"Cannot reduce range for symmetric quantization for {dtype}")
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if self.has_customized_qrange:
            assert quant_min <= 0 <= quant_max, "Used-specified quantization range must include 0."
            assert quant_min < quant_max, "qmin must be strictly less than qmax for user-specified quantization range."
            self.quant_min, self.quant_max = int(quant_min), int(quant_max)
        else:
            self.quant_min, self.quant_max = _RANGES[dtype]
        if reduce_range and dtype not in (_C.qint32, _C.int32):
            self.quant_min, self.quant_max = self.quant_min // 2, self.quant_max // 2
        self.register_buffer("eps", _C.tensor([eps], **(factory_kwargs or {})))

    def _qparams(self, low, high):
        if bool((low > high).any()) or low.numel() == 0:
            warnings.warn(
                "must run observer before calling calculate_qparams. Returning default scale and zero point ",
                stacklevel=3,
            )
            return _C.tensor([1.0]), _C.tensor([0])
        least, greatest = low.clamp_max(0), high.clamp_min(0)
        steps = float(self.quant_max - self.quant_min)
        if self.qscheme in _SYMMETRIC:
            scale = (_C.maximum(-least, greatest) / (steps / 2)).maximum(self.eps.to(low.device))
            middle = (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128
            return scale, _C.full_like(scale, middle if self.dtype in _UNSIGNED else 0, dtype=_C.int64)
        if self.qscheme is schemes.per_channel_affine_float_qparams:
            scale = (high - low) / steps
            scale = _C.where(scale > self.eps, scale, _C.ones_like(scale))
            return scale, -low / scale
        scale = ((greatest - least) / steps).maximum(self.eps.to(low.device))
        zero = self.quant_min - (least / scale).round()
        zero = zero.clamp(self.quant_min, self.quant_max).nan_to_num(0.0).to(_C.int32)
        return scale, zero if scale.dim() else zero.reshape(1)

    def reset_min_max_vals(self):
        """Forget what has been seen."""
        raise NotImplementedError("Cannot reset min/max values in the given observer.")


class MinMaxObserver(UniformQuantizationObserverBase):
    """Keeps the least and the greatest number that it has seen."""

    _channel_wise = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if not self._channel_wise and self.qscheme in _PER_CHANNEL:
            raise NotImplementedError(f"{type(self).__name__}'s qscheme only supports torch.per_tensor_symmetric and "
                                      "torch.per_tensor_affine.")  # fmt: skip
        self.register_buffer("min_val", _C.tensor([] if self._channel_wise else float("inf")))
        self.register_buffer("max_val", _C.tensor([] if self._channel_wise else float("-inf")))

    def _extremes(self, x):
        return x.min(), x.max()

    def _merge(self, low, high):
        if self.min_val.numel() == 0:
            return low, high
        return _C.minimum(self.min_val, low), _C.maximum(self.max_val, high)

    def forward(self, x):
        if x.numel():
            # Changed in place, so that holders of the buffers see the result.
            low, high = self._merge(*self._extremes(x.detach().to(self.min_val.dtype)))
            self.min_val.resize_(low.shape).copy_(low)
            self.max_val.resize_(high.shape).copy_(high)
        return x

    def calculate_qparams(self):
        """(scale, zero_point) for what has been seen."""
        scale, zero = self._qparams(self.min_val, self.max_val)
        return scale.reshape(-1), zero.reshape(-1)

    def reset_min_max_vals(self):
        """Forget what has been seen."""
        if self._channel_wise:
            self.min_val.resize_(0), self.max_val.resize_(0)
        else:
            self.min_val.fill_(float("inf")), self.max_val.fill_(float("-inf"))

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in ("min_val", "max_val"):
            if prefix + name in state_dict:  # the number of channels is found with the first batch
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self):
        low, high = (v.item() if v.dim() == 0 else v for v in (self.min_val, self.max_val))
        return f"min_val={low}, max_val={high}"


class _MovingAverage:
    """Moves the bounds towards those of each batch."""

    def _merge(self, low, high):
        if self.min_val.numel() == 0 or bool((self.min_val > self.max_val).any()):
            return low, high
        rate = self.averaging_constant
        return self.min_val + rate * (low - self.min_val), self.max_val + rate * (high - self.max_val)


class MovingAverageMinMaxObserver(_MovingAverage, MinMaxObserver):
    """Moves the bounds towards those of each batch."""

    def __init__(self, averaging_constant=0.01, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.averaging_constant = averaging_constant


class PerChannelMinMaxObserver(MinMaxObserver):
    """Keeps bounds for each slice along `ch_axis`."""

    _channel_wise = True

    def __init__(self, ch_axis=0, dtype=_C.quint8, qscheme=schemes.per_channel_affine, *args, **kwargs):
        if qscheme not in _PER_CHANNEL:
            raise NotImplementedError(
                "PerChannelMinMaxObserver's qscheme only support torch.per_channel_symmetric, "
                "torch.per_channel_affine and torch.per_channel_affine_float_qparams."
            )
        super().__init__(dtype, qscheme, *args, **kwargs)
        self.ch_axis = ch_axis

    def _extremes(self, x):
        flat = x.movedim(self.ch_axis, 0).flatten(1) if x.dim() > 1 else x.unsqueeze(1)
        return flat.amin(1), flat.amax(1)


class MovingAveragePerChannelMinMaxObserver(_MovingAverage, PerChannelMinMaxObserver):
    """Moves the bounds of each slice towards those of each batch."""

    def __init__(self, averaging_constant=0.01, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.averaging_constant = averaging_constant


class FixedQParamsObserver(ObserverBase):
    """Returns a scale and a zero point that are known beforehand, as those of a sigmoid are."""

    def __init__(
        self,
        scale,
        zero_point,
        dtype=_C.quint8,
        qscheme=schemes.per_tensor_affine,
        quant_min=0,
        quant_max=255,
        is_dynamic=False,
        **kwargs,
    ):
        super().__init__(dtype, is_dynamic)
        self.qscheme, self.quant_min, self.quant_max = qscheme, quant_min, quant_max
        self.register_buffer("scale", _C.tensor([scale], dtype=_C.float32))
        self.register_buffer("zero_point", _C.tensor([zero_point], dtype=_C.int32))

    def forward(self, x):
        return x

    def calculate_qparams(self):
        """The scale and the zero point that were given."""
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Watches nothing: it only says which dtype is wanted."""

    def __init__(
        self,
        dtype=_C.float32,
        custom_op_name="",
        compute_dtype=None,
        quant_min=None,
        quant_max=None,
        qscheme=None,
        eps=None,
        is_dynamic=False,
    ):
        if compute_dtype:
            warnings.warn("Please use `is_dynamic` instead of `compute_dtype`", stacklevel=2)
            is_dynamic = True
        super().__init__(dtype, is_dynamic)
        self.custom_op, self.qscheme = custom_op_name, schemes.per_tensor_affine if qscheme is None else qscheme
        self.quant_min, self.quant_max = quant_min, quant_max
        self.eps = _LEAST_SCALE if eps is None else eps

    def forward(self, x):
        return x

    def extra_repr(self):
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class NoopObserver(ObserverBase):
    """Watches nothing, for layers that stay as they are."""

    def __init__(self, dtype=_C.float16, custom_op_name=""):
        super().__init__(dtype)
        self.custom_op = custom_op_name

    def forward(self, x):
        return x


class ReuseInputObserver(ObserverBase):
    """Says that a layer returns numbers with the scale of its input."""

    def __init__(self):
        super().__init__(_C.quint8)

    def forward(self, x):
        return x


class RecordingObserver(ObserverBase):
    """Keeps a copy of all that passes, to look at."""

    def __init__(self, dtype=_C.quint8):
        super().__init__(dtype)
        self.tensor_val = []

    def forward(self, x):
        self.tensor_val.append(x.detach().clone())
        return x

    def get_tensor_value(self):
        """All tensors that have passed."""
        return self.tensor_val


def get_observer_state_dict(mod):
    """The entries of a prepared model's state_dict that observers have made."""
    return {k: v for k, v in mod.state_dict().items() if "observer" in k or "activation_post_process" in k}


def load_observer_state_dict(mod, obs_dict):
    """Give a prepared model what its observers have found before."""
    missing, unexpected = mod.load_state_dict(obs_dict, strict=False)
    lacking = [k for k in missing if "observer" in k or "activation_post_process" in k]
    if lacking or unexpected:
        raise RuntimeError(f"Missing keys for observers {lacking} and unexpected keys {unexpected}")
