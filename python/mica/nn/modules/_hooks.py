"""Hooks around the calls of modules: those of all modules, how to register a module's own, and a call that has some."""

import warnings
import weakref
from collections import OrderedDict

from mica._C import Tensor
from mica.utils.hooks import BackwardHook, RemovableHandle

# Hooks of every module, by the ids of their handles.
_global_buffer_registration_hooks = OrderedDict()
_global_module_registration_hooks = OrderedDict()
_global_parameter_registration_hooks = OrderedDict()
_global_backward_pre_hooks = OrderedDict()
_global_backward_hooks = OrderedDict()
_global_forward_pre_hooks = OrderedDict()
_global_forward_hooks = OrderedDict()
_global_forward_hooks_always_called = OrderedDict()
_global_forward_hooks_with_kwargs = OrderedDict()
_global_is_full_backward_hook = None


def _add_hook(hooks, hook, *, prepend=False, marks=()):
    """Put the hook into the dict and its mark into those of `marks` that are asked for; the handle undoes it."""
    handle = RemovableHandle(hooks, extra_dict=[dict_ for dict_, _ in marks])
    hooks[handle.id] = hook
    for dict_, wanted in marks:
        if wanted:
            dict_[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_module_buffer_registration_hook(hook):
    """Call hook(module, name, buffer) whenever a module registers a buffer; a value it returns is taken instead."""
    return _add_hook(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook):
    """Call hook(module, name, submodule) whenever a module gets a submodule; a value it returns is taken instead."""
    return _add_hook(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook):
    """Call hook(module, name, parameter) whenever a module gets a parameter; a value it returns is taken instead."""
    return _add_hook(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook):
    """Call hook(module, args) before the forward of every module; what it returns replaces the arguments."""
    return _add_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Call hook(module, args, output) after the forward of every module; what it returns replaces the output."""
    marks = ((_global_forward_hooks_with_kwargs, with_kwargs), (_global_forward_hooks_always_called, always_call))
    return _add_hook(_global_forward_hooks, hook, marks=marks)


def _choose_global_backward_hooks(full):
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is (not full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only "
            "one of them."
        )
    _global_is_full_backward_hook = full


def register_module_backward_hook(hook):
    """The old form of register_module_full_backward_hook: sees the gradients of the last node of each module alone."""
    _choose_global_backward_hooks(False)
    return _add_hook(_global_backward_hooks, hook)


def register_module_full_backward_pre_hook(hook):
    """Call hook(module, grad_output) before the gradients of every module are computed."""
    return _add_hook(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook):
    """Call hook(module, grad_input, grad_output) when the gradients of every module's inputs have been computed."""
    _choose_global_backward_hooks(True)
    return _add_hook(_global_backward_hooks, hook)


class _WrappedHook:
    """A hook that is called with a module it does not keep alive, or with none."""

    def __init__(self, hook, module=None):
        self.hook = hook
        self.with_module = module is not None
        if module is not None:
            self.module = weakref.ref(module)

    def __call__(self, *args, **kwargs):
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self):
        state = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state):
        self.hook = state["hook"]
        self.with_module = state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


class HookedCall:
    """One call of a module that has hooks, or while there are hooks of all modules."""

    def __init__(self, module, args, kwargs):
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self.result = None
        self.called = set()  # ids of the always_call hooks that were called

    def run(self):
        try:
            return self._steps()
        except Exception:
            self._call_remaining()
            raise

    def _steps(self):
        module = self.module
        self._call_pre_hooks()
        full_hooks, old_hooks = module._get_backward_hooks()
        pre_hooks = module._get_backward_pre_hooks()
        backward = BackwardHook(module, full_hooks, pre_hooks) if full_hooks or pre_hooks else None
        if backward:
            self.args = backward.setup_input_hook(self.args)
        self.result = module.forward(*self.args, **self.kwargs)
        for hook_id, hook in (*_global_forward_hooks.items(), *module._forward_hooks.items()):
            if hook_id in module._forward_hooks_always_called or hook_id in _global_forward_hooks_always_called:
                self.called.add(hook_id)
            self._call_forward_hook(hook_id, hook)
        if backward:
            if not isinstance(self.result, (Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but "
                    f"received {type(self.result)}",
                    stacklevel=5,
                )
            self.result = backward.setup_output_hook(self.result)
        if old_hooks:
            self._hang_old_hooks(old_hooks)
        return self.result

    def _call_pre_hooks(self):
        own = self.module._forward_pre_hooks
        for hook_id, hook in (*_global_forward_pre_hooks.items(), *own.items()):
            if hook_id in self.module._forward_pre_hooks_with_kwargs:
                changed = hook(self.module, self.args, self.kwargs)
                if changed is None:
                    continue
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                    )
                self.args, self.kwargs = changed
            else:
                changed = hook(self.module, self.args)
                if changed is not None:
                    self.args = changed if isinstance(changed, tuple) else (changed,)

    def _call_forward_hook(self, hook_id, hook):
        module = self.module
        if hook_id in module._forward_hooks_with_kwargs or hook_id in _global_forward_hooks_with_kwargs:
            changed = hook(module, self.args, self.kwargs, self.result)
        else:
            changed = hook(module, self.args, self.result)
        if changed is not None:
            self.result = changed

    def _call_remaining(self):
        """The call failed: the hooks that are to be called in any case still are."""
        own = self.module._forward_hooks_always_called
        groups = (
            ("global module", _global_forward_hooks, _global_forward_hooks_always_called),
            ("module", self.module._forward_hooks, own),
        )
        for kind, hooks, always in groups:
            for hook_id, hook in hooks.items():
                if hook_id not in always or hook_id in self.called:
                    continue
                try:
                    self._call_forward_hook(hook_id, hook)
                except Exception as error:
                    warnings.warn(
                        f"{kind} forward hook with ``always_call=True`` raised an exception that was silenced as "
                        f"another error was raised in forward: {error}",
                        stacklevel=4,
                    )

    def _hang_old_hooks(self, hooks):
        """Old backward hooks hang on the node of the first output tensor."""
        first = self.result
        while not isinstance(first, Tensor):
            if isinstance(first, dict):
                first = next(value for value in first.values() if isinstance(value, Tensor))
            else:
                first = first[0]
        node = first.grad_fn
        if node is not None:
            for hook in hooks:
                node.register_hook(_WrappedHook(hook, self.module))
            _warn_of_old_hooks(self.args, self.result, node)


def _warn_of_old_hooks(inputs, result, node):
    """Say what the old backward hooks will not see of this call, if anything."""

    def tensors(value):
        value = (value,) if isinstance(value, Tensor) else value
        return value if isinstance(value, tuple) and all(isinstance(each, Tensor) for each in value) else None

    advice = " Please use register_full_backward_hook to get the documented behavior."
    outputs, inputs = tensors(result), tensors(inputs)
    if outputs is None:
        _deprecated(
            "on a Module that does not return a single Tensor or a tuple of Tensors",
            " This hook will be missing some of the grad_output." + advice,
        )
        return
    if inputs is None:
        _deprecated(
            "on a Module that does not take as input a single Tensor or a tuple of Tensors",
            " This hook will be missing some of the grad_input." + advice,
        )
        return
    nodes = {each.grad_fn for each in outputs if each.grad_fn is not None}
    if not nodes or (len(nodes) == 1 and node not in nodes):
        _deprecated(
            "when outputs are nested in python data structure", " This hook will be missing some grad_output.", "a "
        )
    elif len(nodes) > 1:
        _deprecated(
            "when outputs are generated by different autograd Nodes",
            " This hook will be missing some grad_output." + advice,
            "a ",
        )
    else:
        reached = {edge[0] for edge in node.next_functions}
        if {each.grad_fn for each in inputs if each.grad_fn is not None} != reached:
            _deprecated(
                "when the forward contains multiple autograd Nodes",
                " This hook will be missing some grad_input." + advice,
                "a ",
            )


def _deprecated(when, consequence, article=""):
    plural = "" if article else "s"
    warnings.warn(
        f"Using {article}non-full backward hook{plural} {when} is deprecated and will be removed in future versions."
        f"{consequence}",
        FutureWarning,
        stacklevel=6,
    )


class ModuleHooks:
    """The part of Module that registers hooks."""

    __slots__ = ()

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Call hook(module, args) before forward; what it returns replaces the arguments.

        With with_kwargs, it is called with the keyword arguments too, and returns both.
        """
        marks = ((self._forward_pre_hooks_with_kwargs, with_kwargs),)
        return _add_hook(self._forward_pre_hooks, hook, prepend=prepend, marks=marks)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Call hook(module, args, output) after forward; what it returns replaces the output.

        With with_kwargs, it is hook(module, args, kwargs, output); with always_call, it is called even if forward fails.
        """
        marks = ((self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called, always_call))
        return _add_hook(self._forward_hooks, hook, prepend=prepend, marks=marks)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Call hook(module, grad_output) before the module's gradients are computed; what it returns is used instead."""
        return _add_hook(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Call hook(module, grad_input, grad_output) when the gradients of the inputs have been computed.

        What it returns takes the place of grad_input.
        """
        self._choose_backward_hooks(True)
        return _add_hook(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook):
        """The old form of register_full_backward_hook: sees the gradients of the module's last node alone."""
        self._choose_backward_hooks(False)
        return _add_hook(self._backward_hooks, hook)

    def _choose_backward_hooks(self, full):
        if self._is_full_backward_hook is (not full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only "
                "one of them."
            )
        self._is_full_backward_hook = full

    def _get_backward_hooks(self):
        """The full and the old backward hooks that apply to this module."""
        by_kind = {True: [], False: [], None: []}
        by_kind[_global_is_full_backward_hook] += _global_backward_hooks.values()
        by_kind[self._is_full_backward_hook] += self._backward_hooks.values()
        return by_kind[True], by_kind[False]

    def _get_backward_pre_hooks(self):
        return [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]

    def register_state_dict_pre_hook(self, hook):
        """Call hook(module, prefix, keep_vars) before the module's part of a state_dict is written."""
        return _add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook):
        """Call hook(module, state_dict, prefix, local_metadata) when the module's part of a state_dict is written."""
        hook._from_public_api = True
        return _add_hook(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook):
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously registered via "
                "register_state_dict_post_hook"
            )
        return _add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Call the hook with the module and the arguments of its _load_from_state_dict before that runs."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return _add_hook(self._load_state_dict_pre_hooks, _WrappedHook(hook, self if with_module else None))

    def register_load_state_dict_post_hook(self, hook):
        """Call hook(module, incompatible_keys) when the module has been loaded; it may change the lists of keys."""
        return _add_hook(self._load_state_dict_post_hooks, hook)
