"""Module: the base of everything that has parameters.

Calls and attributes are the engine's (`_C._ModuleBase`): a call without hooks goes straight to `forward`, and an
attribute that is not in the instance's dict is looked for among parameters, buffers and submodules. Registration,
walking, conversion, state and hooks are in files of their own.
"""

import sys
import types
import warnings
from collections import OrderedDict
from typing import Any, TypeVar

from mica import _C
from mica._C import _ModuleBase
from mica.nn.modules import _hooks
from mica.nn.modules._conversion import ModuleConversion
from mica.nn.modules._hooks import (
    HookedCall,
    ModuleHooks,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,  # noqa: F401 - programs know these from here
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,  # noqa: F401
    _global_parameter_registration_hooks,  # noqa: F401
    _WrappedHook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from mica.nn.modules._members import ModuleMembers
from mica.nn.modules._registration import ModuleRegistration
from mica.nn.modules._state import _EXTRA_STATE_KEY_SUFFIX, ModuleState, _IncompatibleKeys  # noqa: F401

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]

T_destination = TypeVar("T_destination", bound=dict[str, Any])

# The dicts of hooks that every module has.
_HOOK_DICTS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


def __getattr__(name):
    if name == "_global_is_full_backward_hook":
        return _hooks._global_is_full_backward_hook
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _ModuleOfHooks(types.ModuleType):
    """This module. A program that puts another dict in the place of a dict of hooks changes what that dict holds."""

    def __setattr__(self, name, value):
        known = self.__dict__.get(name)
        if name.startswith("_global_") and isinstance(known, OrderedDict) and value is not known:
            kept = list(value.items())
            known.clear()
            known.update(kept)
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _ModuleOfHooks


def _has_any_global_hook():
    return (
        _global_backward_pre_hooks
        or _global_backward_hooks
        or _global_forward_pre_hooks
        or _global_forward_hooks
        or _global_forward_hooks_always_called
        or _global_forward_hooks_with_kwargs
    )


def _addindent(text, spaces):
    """The text with all lines but the first indented; blank lines stay empty."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line if line.strip() else "" for line in rest)])


def _forward_unimplemented(self, *input):
    """The computation of the module, which every subclass defines."""
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class _CallSignature:
    """What inspect finds of a module that is called, whose __call__ is the engine's. Classes have their constructor's."""

    def __get__(self, module, owner):
        if module is None or owner.__call__ is not Module.__call__:
            raise AttributeError("__signature__")
        import inspect

        return inspect.signature(module._call_impl)


_WrappedHook.__module__ = __name__  # files name it from here, as torch's do


class Module(ModuleRegistration, ModuleMembers, ModuleConversion, ModuleState, ModuleHooks, _ModuleBase):
    """Base class of all parts of networks.

    Parameters, buffers and modules that are assigned as attributes are found by `parameters()`, `state_dict()`, `to()`
    and the like. A subclass calls super().__init__() first and defines `forward`.

    Example::

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.hidden = nn.Linear(8, 32)
                self.out = nn.Linear(32, 1)

            def forward(self, x):
                return self.out(self.hidden(x).relu())
    """

    dump_patches: bool = False
    _version: int = 1
    training: bool
    _parameters: dict[str, _C.Tensor | None]
    _buffers: dict[str, _C.Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    call_super_init: bool = False
    _compiled_call_impl = None
    T_destination = T_destination
    forward = _forward_unimplemented

    def __init__(self, *args, **kwargs):
        if not self.call_super_init:
            name = type(self).__name__
            if kwargs:
                raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        attributes = self.__dict__
        attributes["training"] = True
        attributes["_parameters"] = {}
        attributes["_buffers"] = {}
        attributes["_non_persistent_buffers_set"] = set()
        for each in _HOOK_DICTS:
            attributes[each] = OrderedDict()
        attributes["_is_full_backward_hook"] = None
        attributes["_modules"] = {}
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # ---- calls

    def _call_impl(self, *args, **kwargs):
        if not (
            self._backward_hooks
            or self._backward_pre_hooks
            or self._forward_hooks
            or self._forward_pre_hooks
            or _has_any_global_hook()
        ):
            return self.forward(*args, **kwargs)
        return HookedCall(self, args, kwargs).run()

    _wrapped_call_impl = _call_impl
    __signature__ = _CallSignature()

    def compile(self, *args, **kwargs):
        """Compile the module's forward in place, as torch.compile does."""
        import mica  # the compiler imports the layers

        self.forward = mica._dynamo.CompiledForward(self.forward, *args, **kwargs)
        self._compiled_call_impl = self.forward  # programs ask here whether a module is compiled

    # ---- the modes of training

    def train(self, mode=True):
        """Set the mode of training, or of evaluation with mode=False, for the module and all below it."""
        if not isinstance(mode, bool):
            raise ValueError(f"training mode is expected to be boolean, but got {type(mode).__name__}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Set the mode of evaluation."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Set whether gradients are computed for the parameters; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Forget the gradients of all parameters, or set them to zero."""
        if getattr(self, "_is_replica", False):
            warnings.warn(
                "Calling .zero_grad() from a module created with nn.DataParallel() has no effect: its parameters are "
                "copies that do not accumulate gradients.",
                stacklevel=2,
            )
        for parameter in self.parameters():
            grad = parameter.grad
            if grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                grad = grad.detach_() if grad.grad_fn is not None else grad.requires_grad_(False)
                grad.zero_()

    # ---- pickles, copies and text

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        if getattr(state.get("forward"), "_is_compiled_forward", False):
            del state["forward"]  # pickles and copies have the class's own
        return state

    def __setstate__(self, state):
        own = self.__dict__
        own.update(state)
        # Pickles of old lack what came later.
        for name in _HOOK_DICTS:
            if name not in own:
                own[name] = OrderedDict()
        own.setdefault("_non_persistent_buffers_set", set())
        own.setdefault("_is_full_backward_hook", None)

    def _replicate_for_data_parallel(self):
        replica = self.__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica._parameters = {}
        replica._buffers = replica._buffers.copy()
        replica._modules = replica._modules.copy()
        replica._is_replica = True
        return replica

    def _get_name(self):
        return self.__class__.__name__

    def extra_repr(self):
        """What repr says of the module itself, between its name and its submodules."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        if len(extra_lines) == 1 and not child_lines:
            return f"{self._get_name()}({extra_lines[0]})"
        lines = extra_lines + child_lines
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"

    def __dir__(self):
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in names if not name[0].isdigit())


_C._watch_module_hooks(
    Module,
    (_global_backward_pre_hooks, _global_backward_hooks, _global_forward_hooks, _global_forward_pre_hooks),
)
