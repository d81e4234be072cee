"""Modules and tensors by their path in a model, and the parametrization that multiplies by a mask."""

from mica.nn import Module
from mica.nn.utils.parametrize import is_parametrized, type_before_parametrizations

__all__ = [
    "FakeSparsity",
    "fqn_to_module",
    "get_arg_info_from_tensor_fqn",
    "module_contains_param",
    "module_to_fqn",
    "swap_module",
]


def module_contains_param(module, parametrization):
    """Whether a tensor of the module has a parametrization of this class."""
    if not is_parametrized(module):
        return False
    return any(isinstance(p, parametrization) for chain in module.parametrizations.values() for p in chain)


def swap_module(mod, mapping):
    """`mapping[type of mod].from_dense(mod)` with the hooks of mod, on its device; mod itself where there is no entry."""
    kind = mapping.get(type_before_parametrizations(mod))
    if kind is None:
        return mod
    made = kind.from_dense(mod)
    for hook in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for hook in mod._forward_hooks.values():
        made.register_forward_hook(hook)
    devices = {t.device for tensors in (mod.parameters(), mod.buffers()) for t in tensors}
    if len(devices) > 1:
        raise AssertionError(
            f"swap_module only works with cpu or single-device CUDA modules, but got devices {devices}"
        )
    return made.to(devices.pop()) if devices else made


def module_to_fqn(model, module, prefix=""):
    """The path of a module in a model, or None."""
    for path, found in model.named_modules(remove_duplicate=False):
        if found is module:
            return prefix + path if path else ""
    return None


def fqn_to_module(model, path):
    """The module or tensor at a path, or None."""
    for name in path.split(".") if path else ():
        model = getattr(model, name, None)
    return model


def get_arg_info_from_tensor_fqn(model, tensor_fqn):
    """Where a tensor is: the module, its path, the tensor's name there."""
    module_fqn, _, tensor_name = tensor_fqn.rpartition(".")
    return {
        "module_fqn": module_fqn,
        "module": fqn_to_module(model, module_fqn),
        "tensor_name": tensor_name,
        "tensor_fqn": tensor_fqn,
    }


class FakeSparsity(Module):
    """Multiplies a parameter by a mask. The mask's contents change, the tensor stays; it is not saved with the module."""

    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x):
        if self.mask.shape != x.shape:
            raise AssertionError(f"mask shape ({self.mask.shape}) must match x shape ({x.shape})")
        return self.mask * x

    def state_dict(self, *args, **kwargs):
        return {}
