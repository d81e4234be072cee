"""What optimizers share: checks of their options, and the small functions that programs import from torch's."""

import functools

import mica
from mica import _C
from mica._C import Tensor


class _RequiredParameter:
    """The default of an option that every group must give."""

    def __repr__(self):
        return "<required parameter>"


required = _RequiredParameter()


def _use_grad_for_differentiable(step):
    """Decorates a step: autograd follows it only if the optimizer is differentiable."""

    @functools.wraps(step)
    def with_mode(*args, **kwargs):
        before = _C.is_grad_enabled()
        _C._set_grad_enabled(args[0].defaults["differentiable"])
        try:
            return step(*args, **kwargs)
        finally:
            _C._set_grad_enabled(before)

    return with_mode


def _get_value(x):
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x):
    return x


def _disable_dynamo_if_unsupported(single_tensor_fn=None):
    return lambda function: function


def _default_to_fused_or_foreach(params, differentiable, use_fused=False):
    """Accepts both flags, which change nothing: every step is fused where that is possible."""
    return False, False


def _view_as_real(params, *state_and_grads):
    for i, p in enumerate(params):
        if p.is_complex():
            params[i] = _C.view_as_real(p)
            for states in state_and_grads:
                states[i] = _C.view_as_real(states[i])


def _get_scalar_dtype(is_fused=None):
    return _C.float64 if not is_fused and _C.get_default_dtype() == _C.float64 else _C.float32


def _get_capturable_supported_devices(supports_xla=True):
    return ["cuda", "xpu", "hpu", "privateuseone"] + (["xla"] if supports_xla else [])


def _to_scalar(x):
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _check_tensor_lr(lr):
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"Tensor lr must be 1-element, but it has {lr.numel()} elements")


def _check_betas(betas):
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def _check_fused(optimizer, foreach, differentiable, fused):
    if not fused:
        return
    if differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    optimizer._step_supports_amp_scaling = True


def _numbers_to_tensors(optimizer, *names):
    """Counters in states of old files are Python numbers."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            state = optimizer.state.get(p)
            for name in names if state else ():
                if not isinstance(state[name], Tensor):
                    device = p.device if group.get("capturable") or group.get("fused") else "cpu"
                    dtype = _get_scalar_dtype(is_fused=group.get("fused"))
                    state[name] = _C.tensor(float(state[name]), dtype=dtype, device=device)


def _loss_of(closure):
    """The loss that the closure computes, with autograd recording."""
    if closure is None:
        return None
    with mica.enable_grad():
        return closure()


def _device_dtype_check_for_fused(p, cuda_unsupported=False):
    devices = ["mps", "cuda", "xpu", "hpu", "cpu", "mtia"]
    if not (p.device.type in devices and p.is_floating_point()):
        raise RuntimeError(
            "`fused=True` requires all the params to be floating point Tensors of supported devices: "
            f"{devices} but {p.dtype} and {p.device.type}"
        )


# Lines that documentation of optimizers is put together from.
_params_doc = "params (iterable): parameters, named parameters, or dictionaries of groups"
_foreach_doc = "foreach (bool, optional): accepted; every step is fused where it can be (default: None)"
_fused_doc = "fused (bool, optional): accepted; every step is fused where it can be (default: None)"
_capturable_doc = "capturable (bool, optional): keep counters on the parameters' device (default: False)"
_differentiable_doc = "differentiable (bool, optional): let autograd follow the step (default: False)"
_maximize_doc = "maximize (bool, optional): climb instead of descending (default: False)"
