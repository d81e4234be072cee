"""Modules that round numbers as quantization will, and let gradients pass: for training."""

from mica import _C
from mica._functions import quantization_schemes as schemes
from mica.ao.quantization.observer import (
    _PER_CHANNEL,
    MovingAverageMinMaxObserver,
    _Partial,
)
from mica.nn import Module


class FakeQuantizeBase(Module):
    """The base of all modules that quantize and dequantize: rounding and observing can be turned off."""

    def __init__(self):
        super().__init__()
        self.register_buffer("fake_quant_enabled", _C.tensor([1], dtype=_C.uint8))
        self.register_buffer("observer_enabled", _C.tensor([1], dtype=_C.uint8))

    @classmethod
    def with_args(cls, **kwargs):
        """A function that makes such modules with these arguments."""
        return _Partial(cls, **kwargs)

    def enable_fake_quant(self, enabled=True):
        """Turn the rounding on or off."""
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self):
        """Turn the rounding off."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled=True):
        """Let the observer watch, or not."""
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self):
        """Keep the bounds as they are."""
        self.enable_observer(False)


class FakeQuantize(FakeQuantizeBase):
    """Watches numbers with an observer and rounds them with the scale that it finds."""

    def __init__(
        self, observer=MovingAverageMinMaxObserver, quant_min=None, quant_max=None, is_dynamic=False, **observer_kwargs
    ):
        super().__init__()
        if quant_min is not None and quant_max is not None:
            assert quant_min <= quant_max, "quant_min must be less than or equal to quant_max"
            observer_kwargs = {**observer_kwargs, "quant_min": quant_min, "quant_max": quant_max}
        self.activation_post_process = observer(is_dynamic=is_dynamic, **observer_kwargs)
        made = self.activation_post_process
        self.quant_min, self.quant_max, self.is_dynamic = made.quant_min, made.quant_max, is_dynamic
        self.dtype, self.qscheme = made.dtype, made.qscheme
        self.ch_axis = getattr(made, "ch_axis", -1)
        self.is_per_channel = self.qscheme in _PER_CHANNEL
        floats = self.qscheme is schemes.per_channel_affine_float_qparams
        self.register_buffer("scale", _C.tensor([1.0]))
        self.register_buffer("zero_point", _C.tensor([0], dtype=_C.float32 if floats else _C.int32))

    def calculate_qparams(self):
        """(scale, zero_point) of the observer."""
        return self.activation_post_process.calculate_qparams()

    def _found(self):
        """The scale and the zero point for the values that the observer has seen."""
        return self.calculate_qparams()

    def _observe(self, x):
        self.activation_post_process(x.detach())
        for own, found in zip((self.scale, self.zero_point), self._found(), strict=True):
            own.resize_(found.shape).copy_(found)

    def forward(self, x):
        if self.observer_enabled[0] == 1:
            self._observe(x)
        if self.fake_quant_enabled[0] != 1:
            return x
        if self.is_per_channel:
            # Copied, since a module that runs several times before a backward pass changes its own each time.
            scale, zero_point = self.scale.clone(), self.zero_point.clone()
            return _C.fake_quantize_per_channel_affine(
                x, scale, zero_point, self.ch_axis, self.quant_min, self.quant_max
            )
        return _C.fake_quantize_per_tensor_affine(
            x, float(self.scale), int(self.zero_point), self.quant_min, self.quant_max
        )

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in ("scale", "zero_point"):
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self):
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"quant_min={self.quant_min}, quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, "
            f"ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds with a scale that is known beforehand."""

    def __init__(self, observer):
        super().__init__(observer=observer)
        scale, zero = self.activation_post_process.calculate_qparams()
        self.scale.copy_(scale), self.zero_point.copy_(zero)

    def _observe(self, x):
        pass


_SMALL_SCALE = 6.1e-5


def _chosen_parameters(low, high, quant_min, quant_max, symmetric):
    """(scale, zero_point) as the kernel of torch's engines chooses them, which is not quite as its observers do.

    Numbers of one sign have a zero point at an end, with a symmetric scheme too; those of both signs have all of
    [quant_min, quant_max], where an observer leaves half a step.
    """
    low, high = low.clamp(max=0), high.clamp(min=0)
    steps = quant_max - quant_min
    both = (low < 0) & (high > 0) if symmetric else low > 0
    least, most = -(steps // 2 + 1), steps // 2
    bound = _C.maximum((low / least).abs(), (high / most).abs())
    low, high = _C.where(both, bound * least, low).double(), _C.where(both, bound * most, high).double()
    scale = (high - low) / steps
    none = (scale.float() == 0) | scale.reciprocal().isinf()
    scale = scale.masked_fill(none, 0.1)
    small = scale < _SMALL_SCALE
    grown = _SMALL_SCALE / scale
    low, high = (
        _C.where(small, _C.where(high == 0, -_SMALL_SCALE * steps, low * grown), low),
        _C.where(small, _C.where(low == 0, _SMALL_SCALE * steps, high * grown), high),
    )
    scale = scale.clamp(min=_SMALL_SCALE)
    below, above = low / scale, high / scale
    nearer = abs(quant_min) + below.abs() < abs(quant_max) + above.abs()
    zero = _C.where(nearer, quant_min - below, quant_max - above)
    zero = _C.where(both, (quant_min + quant_max) / 2, zero)
    return scale.float(), zero.round().clamp(quant_min, quant_max).to(_C.int32)


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """FakeQuantize with a moving average; the name of the form that torch computes in one kernel."""

    def __init__(self, observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, **observer_kwargs):
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        self.register_buffer("fake_quant_enabled", _C.tensor([1]))
        self.register_buffer("observer_enabled", _C.tensor([1]))
        self.is_symmetric_quant = self.qscheme in (schemes.per_tensor_symmetric, schemes.per_channel_symmetric)

    def _found(self):
        seen = self.activation_post_process
        return _chosen_parameters(
            seen.min_val.reshape(-1), seen.max_val.reshape(-1), seen.quant_min, seen.quant_max, self.is_symmetric_quant
        )

    def extra_repr(self):
        seen = self.activation_post_process
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}, quant_min={seen.quant_min}, "
            f"quant_max={seen.quant_max}, qscheme={self.qscheme}, reduce_range={seen.reduce_range}"
        )


def _each(method):
    def apply(mod):
        if isinstance(mod, FakeQuantizeBase):
            getattr(mod, method)()

    apply.__name__ = method
    apply.__doc__ = f"For model.apply: {method}() of every module that rounds."
    return apply


disable_fake_quant, enable_fake_quant = _each("disable_fake_quant"), _each("enable_fake_quant")
disable_observer, enable_observer = _each("disable_observer"), _each("enable_observer")
