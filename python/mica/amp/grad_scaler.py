"""Scaling of losses, so that gradients of 16 bits do not vanish.

The check of gradients and the rule of growth are C++: `_amp_foreach_non_finite_check_and_unscale_`, `_amp_update_scale_`.
"""

import inspect
import warnings
from collections import abc, defaultdict
from enum import Enum

import mica
from mica import _C
from mica._C import Tensor

__all__ = ["GradScaler", "OptState"]


class _MultiDeviceReplicator:
    """A tensor and its copies on other devices, made as they are asked for."""

    def __init__(self, master_tensor):
        self.master = master_tensor
        self._per_device_tensors = {}

    def get(self, device):
        """The number's copy on a device, made the first time it is asked for."""
        copy = self._per_device_tensors.get(device)
        if copy is None:
            copy = self.master.to(device=device, non_blocking=True, copy=True)
            self._per_device_tensors[device] = copy
        return copy


class OptState(Enum):
    """Where an optimizer stands between two updates of the scale."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _refresh_per_optimizer_state():
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Scales the loss before backward and the gradients back before the step, so that 16-bit gradients do not vanish.

    A step whose gradients are infinite or NaN is left out and the scale shrinks; after `growth_interval` steps without one
    it grows.

    Args:
        device: the type of device that computes
        init_scale: the first scale
        growth_factor: by how much the scale grows
        backoff_factor: by how much the scale shrinks
        growth_interval: after how many good steps in a row the scale grows
        enabled: False makes every method do what it would do without scaling

    Example::

        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """

    def __init__(
        self,
        device="cuda",
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
    ):
        self._device = device
        self._enabled = enabled
        if self._device == "cuda" and enabled and not mica.cuda.is_available():
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError(f"The growth factor must be > 1.0. It is {growth_factor}")
            if backoff_factor >= 1.0:
                raise AssertionError(f"The backoff factor must be < 1.0. It is {backoff_factor}")
            self._init_scale = init_scale
            self._scale = None  # made on the device of the first loss
            self._growth_factor = growth_factor
            self._backoff_factor = backoff_factor
            self._growth_interval = growth_interval
            self._init_growth_tracker = 0
            self._growth_tracker = None
            self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def _check_scale_growth_tracker(self, funcname):
        for name in ("_scale", "_growth_tracker"):
            if getattr(self, name) is None:
                raise AssertionError(
                    f"Attempted {funcname} but {name} is None.  This may indicate your script did not use "
                    "scaler.scale(loss or outputs) earlier in the iteration."
                )
        return self._scale, self._growth_tracker

    def _lazy_init_scale_growth_tracker(self, dev):
        if self._growth_tracker is not None:
            raise AssertionError("_growth_tracker initialized before _scale")
        self._scale = _C.full((), self._init_scale, dtype=_C.float32, device=dev)
        self._growth_tracker = _C.full((), self._init_growth_tracker, dtype=_C.int32, device=dev)

    def scale(self, outputs):
        """A tensor, or tensors in lists and tuples, times the scale."""
        if not self._enabled:
            return outputs
        copies = None

        def scaled(value):
            nonlocal copies
            if isinstance(value, Tensor):
                if copies is None:
                    if self._scale is None:
                        self._lazy_init_scale_growth_tracker(value.device)
                    copies = _MultiDeviceReplicator(self._scale)
                return value * (self._scale if value.device == self._scale.device else copies.get(value.device))
            if isinstance(value, abc.Iterable):
                values = map(scaled, value)
                return type(value)(values) if isinstance(value, (list, tuple)) else values
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")

        return scaled(outputs)

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        inv_scales = _MultiDeviceReplicator(inv_scale)
        found_infs = _MultiDeviceReplicator(found_inf)
        grads = defaultdict(list)
        for group in optimizer.param_groups:
            for param in group["params"]:
                if not isinstance(param, Tensor):
                    raise AssertionError(f"expected param to be torch.Tensor, got {type(param).__name__}")
                grad = param.grad
                if grad is None:
                    continue
                if not allow_fp16 and grad.dtype == _C.float16:
                    raise ValueError(
                        "Attempting to unscale FP16 gradients. Keep the parameters in float32, and let autocast compute "
                        "in float16"
                    )
                if grad.is_sparse:
                    if grad.dtype == _C.float16:  # values at one place may overflow only when they are summed
                        param.grad = grad = grad.coalesce()
                    grad = grad._values()
                grads[grad.device].append(grad)
        for device, on_device in grads.items():
            _C._amp_foreach_non_finite_check_and_unscale_(on_device, found_infs.get(device), inv_scales.get(device))
        return found_infs._per_device_tensors

    def unscale_(self, optimizer):
        """Scale the optimizer's gradients back, before they are clipped or looked at. step() does it otherwise."""
        if not self._enabled:
            return
        self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inv_scale = self._scale.double().reciprocal().float()
        found_inf = _C.full((), 0.0, dtype=_C.float32, device=self._scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inv_scale, found_inf, False)
        state["stage"] = OptState.UNSCALED

    def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
        if sum(v.item() for v in optimizer_state["found_inf_per_device"].values()):
            return None
        return optimizer.step(*args, **kwargs)

    def step(self, optimizer, *args, **kwargs):
        """The optimizer's step, unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_that_unscales(optimizer, state, *args, **kwargs)
        else:
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if len(state["found_inf_per_device"]) == 0:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            result = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _step_that_unscales(self, optimizer, state, *args, **kwargs):
        """The step of an optimizer that takes the scale and the outcome of the check as attributes."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near "
                "future GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer and "
                "let the optimizer use them directly.",
                FutureWarning,
                stacklevel=3,
            )
            return optimizer.step(*args, **kwargs, grad_scaler=self)
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        scaler = self._get_scale_async()
        found_inf = sum(t.to(scaler.device, non_blocking=True) for t in state["found_inf_per_device"].values())
        if state["stage"] is OptState.UNSCALED:
            optimizer.grad_scale = getattr(optimizer, "grad_scale", None)
        else:
            optimizer.grad_scale = scaler * getattr(optimizer, "grad_scale", 1)
        optimizer.found_inf = found_inf
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale
            del optimizer.found_inf

    def update(self, new_scale=None):
        """Let the scale follow the checks since the last update, or set it."""
        if not self._enabled:
            return
        scale, growth_tracker = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            if isinstance(new_scale, float):
                scale.fill_(new_scale)
            else:
                if new_scale.device.type != self._device or new_scale.numel() != 1 or new_scale.requires_grad:
                    raise AssertionError(
                        "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
                        "requires_grad=False."
                    )
                scale.copy_(new_scale)
        else:
            found_infs = [
                found_inf.to(device=scale.device, non_blocking=True)
                for state in self._per_optimizer_states.values()
                for found_inf in state["found_inf_per_device"].values()
            ]
            if len(found_infs) == 0:
                raise AssertionError("No inf checks were recorded prior to update.")
            _C._amp_update_scale_(
                scale,
                growth_tracker,
                sum(found_infs[1:], found_infs[0]),
                self._growth_factor,
                self._backoff_factor,
                self._growth_interval,
            )
        self._per_optimizer_states = defaultdict(_refresh_per_optimizer_state)

    def _get_scale_async(self):
        return self._scale

    def get_scale(self):
        """The scale as a number; one if scaling is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self):
        """By how much the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        """Set by how much the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        """By how much the scale shrinks."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        """Set by how much the scale shrinks."""
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        """After how many steps in a row the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        """Set after how many steps in a row the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self):
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker.item()

    def is_enabled(self):
        """Whether losses are scaled at all."""
        return self._enabled

    def state_dict(self):
        """The scale, its options and its counter; nothing if scaling is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict):
        """Take over what state_dict() has returned."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])

    def __getstate__(self):
        state = self.__dict__.copy()
        if self._enabled:
            if len(self._per_optimizer_states) != 0:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                    "scaler.update()."
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = None
            state["_growth_tracker"] = None
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)

    def _check_inf_per_device(self, optimizer):
        scale, _ = self._check_scale_growth_tracker("_check_inf_per_device")
        one = _C.full((), 1.0, dtype=_C.float32, device=scale.device)
        found_inf = _C.full((), 0.0, dtype=_C.float32, device=scale.device)
        state = self._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, one, found_inf, True)
        return state["found_inf_per_device"]

    def _found_inf_per_device(self, optimizer):
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
