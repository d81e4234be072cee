"""The package functorch, which torch brings beside itself: torch.func under its first names."""

from mica.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from mica.nn import Module

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "make_functional", "make_functional_with_buffers", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


class FunctionalModuleWithBuffers(Module):
    """A module that is called with the parameters and the buffers that it computes with."""

    def __init__(self, stateless_model):
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names = [name for name, _ in stateless_model.named_parameters()]
        self.buffer_names = [name for name, _ in stateless_model.named_buffers()]

    def forward(self, params, buffers, *args, **kwargs):
        values = dict(zip(self.param_names, params, strict=True)) | dict(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, values, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without buffers that is called with the parameters that it computes with."""

    def forward(self, params, *args, **kwargs):
        return super().forward(params, (), *args, **kwargs)


def make_functional_with_buffers(model, disable_autograd_tracking=False):
    """A module as a function of its parameters and buffers: (function, parameters, buffers)."""
    values = tuple(p.detach() if disable_autograd_tracking else p for p in model.parameters())
    return FunctionalModuleWithBuffers(model), values, tuple(model.buffers())


def make_functional(model, disable_autograd_tracking=False):
    """A module without buffers as a function of its parameters: (function, parameters)."""
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    return FunctionalModule(model), make_functional_with_buffers(model, disable_autograd_tracking)[1]


def combine_state_for_ensemble(models):
    """The states of equal modules, stacked: (function, parameters, buffers)."""
    parameters, buffers = stack_module_state(list(models))
    return FunctionalModuleWithBuffers(models[0]), tuple(parameters.values()), tuple(buffers.values())
