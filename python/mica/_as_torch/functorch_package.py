"""The package functorch, which torch brings beside itself: torch.func under its first names."""

import functools

from mica import _higher_order_ops
from mica import func as _func
from mica.func import functional_call, linearize, stack_module_state
from mica.nn import Module

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "make_functional", "make_functional_with_buffers", "make_fx", "stack_module_state", "vjp", "vmap",
]  # fmt: skip

_WARNING = (
    "We've integrated functorch into PyTorch. As the final step of the integration, `functorch.{name}` is deprecated as of "
    "PyTorch 2.0 and will be deleted in a future version of PyTorch >= 2.3. Please use `{instead}` instead; see the PyTorch "
    "2.0 release notes and/or the `torch.func` migration guide for more details "
    "https://pytorch.org/docs/main/func.migrating.html"
)


def _deprecated(function, instead):
    """A function that says under which name it is meant to be called."""

    @functools.wraps(function)
    def called(*args, **kwargs):
        import warnings

        text = _WARNING.format(name=function.__name__, instead=instead)
        warnings.warn(text, FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return called


functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp = (
    _deprecated(each, f"torch.func.{each.__name__}")
    for each in (
        _func.functionalize, _func.grad, _func.grad_and_value, _func.hessian, _func.jacfwd, _func.jacrev, _func.jvp, _func.vjp,
    )
)  # fmt: skip
vmap = _deprecated(_func.vmap, "torch.vmap")


def make_fx(*args, **kwargs):
    """torch.fx.experimental.proxy_tensor.make_fx"""
    from mica.fx.experimental.proxy_tensor import make_fx

    return make_fx(*args, **kwargs)


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


def _functional_with_buffers(model, disable_autograd_tracking=False):
    """A module as a function of its parameters and buffers: (function, parameters, buffers)."""
    values = tuple(p.detach() if disable_autograd_tracking else p for p in model.parameters())
    return FunctionalModuleWithBuffers(model), values, tuple(model.buffers())


def make_functional(model, disable_autograd_tracking=False):
    """A module without buffers as a function of its parameters: (function, parameters)."""
    if any(True for _ in model.buffers()):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    return FunctionalModule(model), _functional_with_buffers(model, disable_autograd_tracking)[1]


def combine_state_for_ensemble(models):
    """The states of equal modules, stacked: (function, parameters, buffers)."""
    if any(m.training != models[0].training for m in models):
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    parameters, buffers = stack_module_state(list(models))
    return FunctionalModuleWithBuffers(models[0]), tuple(parameters.values()), tuple(buffers.values())


_functional_with_buffers.__name__ = "make_functional_with_buffers"
make_functional_with_buffers = _deprecated(_functional_with_buffers, "torch.func.functional_call")
make_functional = _deprecated(make_functional, "torch.func.functional_call")
combine_state_for_ensemble = _deprecated(combine_state_for_ensemble, "torch.func.stack_module_state")


class experimental:
    """Functions that functorch had before torch.func."""

    __all__ = ("chunk_vmap", "functionalize", "hessian", "jacfwd", "jvp", "replace_all_batch_norm_modules_")

    hessian, jacfwd, jvp = staticmethod(_func.hessian), staticmethod(_func.jacfwd), staticmethod(_func.jvp)
    functionalize = staticmethod(_func.functionalize)
    replace_all_batch_norm_modules_ = staticmethod(_func.replace_all_batch_norm_modules_)

    @staticmethod
    def chunk_vmap(func, in_dims=0, out_dims=0, randomness="error", chunks=2):
        """vmap over so many parts of the batch, one after the other."""
        if chunks == 1:
            return _func.vmap(func, in_dims, out_dims, randomness)

        @functools.wraps(func)
        def mapped(*args, **kwargs):
            from mica.utils._pytree import tree_flatten

            dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
            size = next(
                x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None for x in tree_flatten(x)[0][:1]
            )
            # As Tensor.chunk divides them.
            part = max(-(-size // chunks), 1)
            return _func.vmap(func, in_dims, out_dims, randomness, chunk_size=part)(*args, **kwargs)

        return mapped


class control_flow:
    """functorch.experimental.control_flow: branches and loops by their first names."""

    __all__ = ("cond", "map")

    cond, map = staticmethod(_higher_order_ops.cond), staticmethod(_higher_order_ops.map)


class _Compile:
    """functorch.compile: graphs of the forward and the backward pass, for compilers."""

    __all__ = ("aot_function", "aot_module", "aot_module_simplified", "compiled_function", "compiled_module",
               "config", "debug_compile", "default_decompositions", "default_partition", "make_boxed_compiler", "make_boxed_func",
               "min_cut_rematerialization_partition", "nop", "print_compile", "ts_compile")  # fmt: skip

    @staticmethod
    def _find(name):
        from mica._functorch import aot_autograd, compilers, config, partitioners

        if name == "config":
            return config
        if name in ("compiled_function", "compiled_module"):
            return getattr(aot_autograd, name.replace("compiled", "aot"))
        return next(
            (getattr(room, name) for room in (aot_autograd, compilers, partitioners) if hasattr(room, name)), None
        )

    def __getattr__(self, name):
        found = None if name.startswith("_") else self._find(name)
        if found is None:
            raise AttributeError(f"module 'functorch.compile' has no attribute {name!r}")
        return found


def __getattr__(name):
    if name == "compile":
        return _Compile()
    raise AttributeError(f"module 'functorch' has no attribute {name!r}")
