"""Functions with a backward of their own."""

import functools
import warnings

from mica import _C
from mica.autograd.grad_mode import no_grad

__all__ = ["BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "InplaceFunction", "once_differentiable"]


class FunctionCtx:
    """The class of every function's `ctx`."""

    def save_for_forward(self, *tensors):
        self.saved_for_forward = tensors

    def mark_shared_storage(self, *pairs):
        """Warn: tensors that share memory are known without it."""
        warnings.warn(
            "mark_shared_storage is deprecated. Tensors with shared storages are automatically tracked. Note that calls "
            "to `set_()` are not tracked",
            FutureWarning,
            stacklevel=2,
        )


class BackwardCFunction(_C._FunctionBase, FunctionCtx):
    """The context of a call, and the node that the call leaves in the graph."""

    def apply(self, *args):
        """Call the backward of the function as a pass does, with the gradients of the outputs."""
        function = self._forward_cls
        return (function.backward if function.vjp is Function.vjp else function.vjp)(self, *args)

    def apply_jvp(self, *args):
        """Call the jvp of the function, with the tangents of the inputs."""
        return self._forward_cls.jvp(self, *args)


def _argument_binder(forward):
    """Gives every parameter of `forward` a position: keywords and defaults are filled in."""
    import inspect

    signature = inspect.signature(forward)
    has_defaults = any(p.default is not p.empty for p in signature.parameters.values())

    def bind(args, kwargs):
        if not kwargs and not has_defaults:
            return args
        bound = signature.bind(*args, **kwargs)
        for name in bound.kwargs:
            _refuse_keyword(name)
        bound.apply_defaults()
        return bound.args

    return bind


def _refuse_keyword(name):
    raise TypeError(f"forward() got an unexpected keyword argument '{name}'")


def _keyword_binder(forward):
    """Gives the keywords of a call the positions that `forward(ctx, ...)` has for their names."""

    def bind(args, kwargs):
        import inspect

        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [p.name for p in inspect.signature(forward).parameters.values() if p.kind in kinds][1:]
        for name in kwargs:
            if name not in names:
                _refuse_keyword(name)
        placed, rest = list(args), dict(kwargs)
        for position, name in enumerate(names):
            if position < len(args):
                if name in rest:
                    raise TypeError(f"forward() got multiple values for argument '{name}'")
            elif not rest:
                break
            elif name not in rest:
                raise TypeError(f"forward() missing required argument: '{name}' (position {position})")
            else:
                placed.append(rest.pop(name))
        return tuple(placed)

    return bind


class FunctionMeta(type):
    """Gives each function a class for its contexts, named after it."""

    def __init__(cls, name, bases, attributes):
        super().__init__(name, bases, attributes)
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_forward_cls": cls})
        separate_setup = cls.setup_context is not _C._FunctionBase.setup_context
        cls._bind_arguments = staticmethod(_argument_binder(cls.forward)) if separate_setup else None
        # torch.func takes functions with a separate setup_context, and Mica's own, which are written for it.
        cls._is_transformable = separate_setup or cls.__module__.partition(".")[0] in ("mica", "torch")
        cls._bind_keywords = staticmethod(_keyword_binder(cls.forward))
        functions = [base for base in cls.__mro__ if isinstance(base, FunctionMeta)]  # the last of them is Function
        cls._has_jvp = any("jvp" in vars(base) for base in functions[:-1])


class Function(_C._FunctionBase, FunctionCtx, metaclass=FunctionMeta):
    """A function with a backward of its own: subclass it, and call `apply`.

    A subclass has static methods: `forward(ctx, *args)` and `backward(ctx, *grad_outputs)`; or `forward(*args)`,
    `setup_context(ctx, inputs, output)` and `backward`. `backward` returns one gradient, or None, for each argument.

    Example::

        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = x.exp()
                ctx.save_for_backward(y)
                return y

            @staticmethod
            def backward(ctx, grad):
                (y,) = ctx.saved_tensors
                return grad * y

        Exp.apply(x)
    """

    generate_vmap_rule = False
    clear_saved_tensors_on_access = False  # drop what was saved once backward has read it

    def __init__(self, *args, **kwargs):
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method. "
            "(Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def jvp(ctx, *grad_inputs):
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info, in_dims, *args):
        raise NotImplementedError("To use autograd.Function with vmap, you must override its vmap staticmethod.")


class InplaceFunction(Function):
    """A function that remembers whether it changes its argument."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace


class _TwiceError(Function):
    @staticmethod
    def forward(ctx, *tensors):
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


_TwiceError._backward_cls = type(
    "Error", (BackwardCFunction,), {"_forward_cls": _TwiceError}
)  # torch's name for the node


def once_differentiable(backward):
    """Decorates a `backward` that cannot be differentiated. Differentiating it is then an error instead of a wrong result."""

    @functools.wraps(backward)
    def wrapper(ctx, *args):
        with no_grad():
            outputs = backward(ctx, *args)
        # Outside double backward, nothing can be differentiated a second time.
        if not _C.is_grad_enabled():
            return outputs
        if not any(isinstance(arg, _C.Tensor) and arg.requires_grad for arg in args):
            return outputs
        as_tuple = outputs if isinstance(outputs, tuple) else (outputs,)
        # The node has an edge for each output, which leads nowhere for an output that is None.
        given = (_C.empty(0) if output is None else output.detach().requires_grad_() for output in as_tuple)
        guarded = _TwiceError.apply(*given)
        results = [None if old is None else new for old, new in zip(as_tuple, guarded, strict=True)]
        return tuple(results) if isinstance(outputs, tuple) else results[0]

    return wrapper
