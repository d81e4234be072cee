"""The state of a module: writing it into a dict and taking it from one."""

import itertools
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping

from mica.__future__ import get_swap_module_params_on_conversion
from mica._C import Tensor
from mica.autograd.grad_mode import no_grad
from mica.nn.parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The result of load_state_dict: the keys that are missing in the state, and those that the module has no place for."""

    __slots__ = ()

    def __repr__(self):
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


def _quoted(keys):
    return ", ".join(f'"{key}"' for key in keys)


def _ways_out(keys, problems):
    """The advice that follows the list of errors."""
    advice = []
    prefixes = {key.split(".", 1)[0] + "." for key in keys.unexpected_keys if "." in key}
    if len(prefixes) == 1 and all(key.startswith(next(iter(prefixes))) for key in keys.unexpected_keys):
        prefix = next(iter(prefixes))
        bare = {key.removeprefix(prefix) for key in keys.unexpected_keys}
        if bare >= set(keys.missing_keys):
            advice.append(
                f"All keys of the state_dict begin with {prefix!r}, as a wrapper saves them: load "
                f"{{k.removeprefix({prefix!r}): v for k, v in state_dict.items()}}."
            )
    if (keys.missing_keys or keys.unexpected_keys) and not advice:
        advice.append("load_state_dict(..., strict=False) loads the keys that both have and returns the others.")
    if any(problem.startswith("size mismatch") for problem in problems):
        advice.append(
            "Build the model with the sizes it was saved with, or drop these keys and load with strict=False."
        )
    return advice


def _load_tree(module, part, prefix, metadata, assign, keys, error_msgs):
    """Load a module and all below it from the part of a state dict whose keys begin with the prefix."""
    local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local_metadata["assign_to_params_buffers"] = assign
    module._load_from_state_dict(
        part, prefix, local_metadata, True, keys.missing_keys, keys.unexpected_keys, error_msgs
    )
    for name, child in module._modules.items():
        if child is not None:
            child_prefix = f"{prefix}{name}."
            child_part = {key: part[key] for key in part if key.startswith(child_prefix)}
            _load_tree(child, child_part, child_prefix, metadata, assign, keys, error_msgs)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, if "
                "incompatible_keys need to be modified, it should be done inplace."
            )


class ModuleState:
    """The part of Module that saves and loads."""

    __slots__ = ()

    def get_extra_state(self):
        """What a module keeps beside its parameters and buffers; overridden together with set_extra_state."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called: a module with extra state "
            "overrides get_extra_state and set_extra_state."
        )

    def set_extra_state(self, state):
        """Load what get_extra_state returned when the module was saved."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called: a module with extra state "
            "overrides get_extra_state and set_extra_state."
        )

    def _persistent_buffers(self):
        return (
            (name, buffer) for name, buffer in self._buffers.items() if name not in self._non_persistent_buffers_set
        )

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Write this module's own tensors into the dict, without those of its submodules."""
        for name, tensor in itertools.chain(self._parameters.items(), self._persistent_buffers()):
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not ModuleState.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """All parameters and persistent buffers by their full names, detached unless keep_vars.

        The dict's `_metadata` says the version of each module.
        """
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead.",
                FutureWarning,
                stacklevel=2,
            )
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            returned = hook(self, destination, prefix, local_metadata)
            if returned is None:
                continue
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            destination = returned
        return destination

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        """Load this module's own tensors; what goes wrong is added to the three lists."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = itertools.chain(self._parameters.items(), self._persistent_buffers())
        own = {name: tensor for name, tensor in own if tensor is not None}
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                problem = self._load_tensor(name, tensor, key, state_dict[key], assign)
                if problem:
                    error_msgs.append(problem)
            elif strict:
                missing_keys.append(key)

        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not ModuleState.set_extra_state:
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)

        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    name, dot, _ = key[len(prefix) :].partition(".")
                    if name not in (self._modules if dot else own):
                        unexpected_keys.append(key)

    def _load_tensor(self, name, tensor, key, value, assign):
        """Copy or assign one value of a state dict; returns what is wrong with it, if anything."""
        if not isinstance(value, Tensor) and not hasattr(type(value), "__torch_function__"):
            return (
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                f"checkpoint but received {type(value)}"
            )
        if not is_lazy(tensor):
            # Files of old hold numbers as tensors of one element.
            if tensor.dim() == 0 and tuple(value.shape) == (1,):
                value = value[0]
            if value.shape != tensor.shape:
                return (
                    f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in "
                    f"current model is {tensor.shape}."
                )
        if tensor.is_meta and not value.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current "
                "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary "
                "to their corresponding key in the module instead of copying them in place?)",
                stacklevel=4,
            )
        try:
            with no_grad():
                if get_swap_module_params_on_conversion():
                    self._swap_in(name, tensor, value, assign)
                    return None
                if not assign:
                    tensor.copy_(value)
                    return None
                if isinstance(tensor, Parameter):
                    if isinstance(value, Parameter):
                        value.requires_grad_(tensor.requires_grad)
                    else:
                        value = Parameter(value, requires_grad=tensor.requires_grad)
                setattr(self, name, value)
        except Exception as error:
            doing = "swapping" if get_swap_module_params_on_conversion() else "copying"
            return (
                f'While {doing} the parameter named "{key}", whose dimensions in the model are {tensor.size()} and '
                f"whose dimensions in the checkpoint are {value.size()}, an exception occurred : {error.args}."
            )
        return None

    def _swap_in(self, name, tensor, value, assign):
        """Let the tensor's object stand for what its module_load makes of a value."""
        from mica.utils import swap_tensors

        loaded = tensor.module_load(value, assign=assign)
        if loaded is tensor or loaded is value:
            raise RuntimeError(
                "module_load returned one of self or other, please .detach() the result if returning one of the inputs "
                "in module_load"
            )
        if isinstance(tensor, Parameter):
            if not isinstance(loaded, Parameter):
                loaded = Parameter(loaded, requires_grad=tensor.requires_grad)
            else:
                loaded.requires_grad_(tensor.requires_grad)
        swap_tensors(tensor, loaded)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copy the values of a state dict into the module's tensors, or put them in their place with assign=True.

        With strict, the keys must be those of this module's state_dict. One error lists everything that is wrong.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata
        keys = _IncompatibleKeys([], [])
        error_msgs = []
        _load_tree(self, state_dict, "", metadata, assign, keys, error_msgs)
        if strict:
            if keys.unexpected_keys:
                error_msgs.insert(0, f"Unexpected key(s) in state_dict: {_quoted(keys.unexpected_keys)}. ")
            if keys.missing_keys:
                error_msgs.insert(0, f"Missing key(s) in state_dict: {_quoted(keys.missing_keys)}. ")
        if error_msgs:
            error_msgs += _ways_out(keys, error_msgs)
            problems = "\n\t".join(error_msgs)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{problems}")
        return keys
