"""The base of all optimizers: parameter groups, states, hooks, and how both are saved.

What a step computes is in C++ (`_C._adam_step` and its like); the layout of `param_groups` and `state` is torch's, so that
a run can move between the two libraries in its middle.
"""

import functools
import importlib
import sys
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import Any, TypeAlias

import mica
from mica import _C
from mica._C import Tensor
from mica.optim._options import (  # noqa: F401 - names that programs import from here
    _capturable_doc,
    _check_betas,
    _check_fused,
    _check_tensor_lr,
    _default_to_fused_or_foreach,
    _device_dtype_check_for_fused,
    _differentiable_doc,
    _disable_dynamo_if_unsupported,
    _foreach_doc,
    _fused_doc,
    _get_capturable_supported_devices,
    _get_scalar_dtype,
    _get_value,
    _loss_of,
    _maximize_doc,
    _numbers_to_tensors,
    _params_doc,
    _RequiredParameter,
    _stack_if_compiling,
    _to_scalar,
    _use_grad_for_differentiable,
    _view_as_real,
    required,
)
from mica.optim._saved_state import numbered, taken_over
from mica.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
StateDict: TypeAlias = dict[str, Any]
DeviceDict: TypeAlias = dict
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

_global_optimizer_pre_hooks = OrderedDict()
_global_optimizer_post_hooks = OrderedDict()


def register_optimizer_step_pre_hook(hook):
    """Call `hook(optimizer, args, kwargs)` before each step of any optimizer; it may return new (args, kwargs)."""
    handle = RemovableHandle(_global_optimizer_pre_hooks)
    _global_optimizer_pre_hooks[handle.id] = hook
    return handle


def register_optimizer_step_post_hook(hook):
    """Call `hook(optimizer, args, kwargs)` after each step of any optimizer."""
    handle = RemovableHandle(_global_optimizer_post_hooks)
    _global_optimizer_post_hooks[handle.id] = hook
    return handle


_HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class Optimizer:
    """Holds parameters in groups with their options, and a state for each parameter.

    `params` is an iterable of tensors, of (name, tensor) pairs or of dictionaries with "params" and options of their own;
    `defaults` has the options of groups that do not say otherwise.
    """

    OptimizerPreHook: TypeAlias = Any
    OptimizerPostHook: TypeAlias = Any

    def __init__(self, params, defaults):
        self.defaults = defaults
        for table in _HOOK_TABLES:
            setattr(self, table, OrderedDict())
        self._patch_step_function()

        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                + mica.typename(params)
            )
        self.state = defaultdict(dict)
        self.param_groups = []
        if isinstance(params, mica.nn.Module):
            raise TypeError(
                f"'{type(params).__name__}' object is not iterable. An optimizer takes the parameters of a model: "
                "model.parameters()."
            )
        groups = list(params)
        if len(groups) == 0:
            raise ValueError(
                "optimizer got an empty parameter list. A model finds the layers that are its attributes or in an "
                "nn.ModuleList, not those in a plain list."
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        self._warned_capturable_if_run_uncaptured = True

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self):
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join(lines) + "\n)"

    # ---- steps

    def step(self, closure=None):
        """Change the parameters once by their gradients; a closure is called for the loss first."""
        raise NotImplementedError

    @property
    def _has_spread(self):
        """Whether a parameter is spread over processes. It is asked anew each time, because programs replace parameters."""
        if "mica.distributed.tensor._api" not in sys.modules:
            return False
        return any(getattr(type(p), "_is_spread", False) for group in self.param_groups for p in group["params"])

    def _change(self, step, *more):
        """Let a step of the engine change the parameters, or the parts of them that this process has."""
        if self._has_spread:
            return importlib.import_module("mica.optim._spread").change(self, step, more)
        return step(self.param_groups, self.state, *more)

    def zero_grad(self, set_to_none=True):
        """Forget the gradients, or set them to zero."""
        if self._has_spread and not set_to_none:
            return importlib.import_module("mica.optim._spread").zero(self.param_groups)
        if _C._profiler_recording():
            with mica.autograd.profiler.record_function(self._zero_grad_profile_name):
                return _C._optimizer_zero_grad(self.param_groups, set_to_none)
        return _C._optimizer_zero_grad(self.param_groups, set_to_none)

    def _optimizer_step_code(self):
        """A place where profilers can see an optimizer after its step."""

    def _accelerator_graph_capture_health_check(self):
        pass

    _cuda_graph_capture_health_check = _accelerator_graph_capture_health_check

    @staticmethod
    def profile_hook_step(func):
        """The step with its hooks around it, as a named range of a profile."""

        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            self = args[0]
            if (
                self._optimizer_step_pre_hooks
                or self._optimizer_step_post_hooks
                or _global_optimizer_pre_hooks
                or _global_optimizer_post_hooks
                or _C._profiler_recording()
            ):
                return self._step_with_hooks(func, args, kwargs)
            return func(*args, **kwargs)

        return wrapper

    def _step_with_hooks(self, func, args, kwargs):
        with mica.autograd.profiler.record_function(f"Optimizer.step#{type(self).__name__}.step"):
            for hook in chain(_global_optimizer_pre_hooks.values(), self._optimizer_step_pre_hooks.values()):
                result = hook(self, args, kwargs)
                if result is None:
                    continue
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(
                        f"{func} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                    )
                args, kwargs = result
            out = func(*args, **kwargs)
            self._optimizer_step_code()
            for hook in chain(self._optimizer_step_post_hooks.values(), _global_optimizer_post_hooks.values()):
                hook(self, args, kwargs)
            return out

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
        """Lists of tensors by the device and dtype of the first list's: {(device, dtype): (lists, indices)}."""
        groups = {}
        for i, first in enumerate(tensorlistlist[0]):
            lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
            for mine, tensors in zip(lists, tensorlistlist, strict=True):
                if tensors:
                    mine.append(tensors[i])
            if with_indices:
                indices.append(i)
        return groups

    def _patch_step_function(self):
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"
        cls = type(self)
        if not getattr(cls.step, "hooked", None):
            cls.step = self.profile_hook_step(cls.step)
            cls.step.hooked = True

    # ---- hooks

    def _add_hook(self, table, hook, prepend=False):
        hooks = getattr(self, table)
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_step_pre_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new (args, kwargs)."""
        return self._add_hook("_optimizer_step_pre_hooks", hook)

    def register_step_post_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._add_hook("_optimizer_step_post_hooks", hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Call `hook(optimizer)` before state_dict()."""
        return self._add_hook("_optimizer_state_dict_pre_hooks", hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Call `hook(optimizer, state_dict)` on what state_dict() returns; it may return another one."""
        return self._add_hook("_optimizer_state_dict_post_hooks", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Call `hook(optimizer, state_dict)` before load_state_dict(); it may return another one."""
        return self._add_hook("_optimizer_load_state_dict_pre_hooks", hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Call `hook(optimizer)` after load_state_dict()."""
        return self._add_hook("_optimizer_load_state_dict_post_hooks", hook, prepend)

    # ---- saving

    def state_dict(self):
        """The states by the parameters' numbers, and the groups with those numbers in place of the parameters."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        result = numbered(self.param_groups, self.state)
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, result)
            if changed is not None:
                result = changed
        return result

    @staticmethod
    def _process_value_according_to_param_policy(param, value, param_id, param_groups, key=None):
        """A saved tensor as this parameter's state: of its device and, if floating, its dtype. Counters stay as they are
        unless they are to live on the device."""
        group = next((g for g in param_groups if param_id in g["params"]), {})
        if key == "step":
            if group.get("capturable", False) or group.get("fused", False):
                return value.to(dtype=_C.float32, device=param.device)
            return value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)

    def load_state_dict(self, state_dict):
        """Load the state that state_dict() of an optimizer with the same groups has returned."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            if changed is not None:
                state_dict = changed

        adapt = Optimizer._process_value_according_to_param_policy
        self.__setstate__(taken_over(self.param_groups, state_dict, adapt))
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    # ---- groups

    def add_param_group(self, param_group):
        """Add parameters with options of their own: a dictionary with "params"; options it lacks are the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        params = [p[1] if isinstance(p, tuple) else p for p in params]
        param_group["params"] = params
        if names:
            if len(names) != len(params):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = names

        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + mica.typename(p))
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError(
                    f"can't optimize a non-leaf Tensor: one of shape {tuple(p.shape)} was computed from others. Give the "
                    "tensors that it was computed from, or x.detach().requires_grad_()"
                )
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )

        known = set()
        for group in self.param_groups:
            known.update(group["params"])
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {kind} to the optimizer"
                )
        if not known.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)
