"""Modules around others whose activations are computed again in backward, or wait for it in the memory of the CPU."""

import enum
import functools

from mica import nn
from mica.autograd.graph import save_on_cpu
from mica.distributed.fsdp.wrap import _Policy, _recursive_wrap, _replaced, lambda_auto_wrap_policy
from mica.utils.checkpoint import checkpoint

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = f"{_CHECKPOINT_WRAPPED_MODULE}."


class CheckpointImpl(enum.Enum):
    """The two forms of torch.utils.checkpoint."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class ActivationWrapper(nn.Module):
    """A module around another one. The names of parameters and of states do not show it."""

    def __init__(self, mod):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def forward(self, *args, **kwargs):
        """Subclasses have it."""
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == _CHECKPOINT_WRAPPED_MODULE:
                raise
            return getattr(self._checkpoint_wrapped_module, name)

    def __getitem__(self, key):
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args, **kwargs):
        """The names that the module has without wrappers."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), parameter


def _moved(state, old, new):
    for key in [key for key in state if key.startswith(old)]:
        state[new + key[len(old) :]] = state.pop(key)


def _without_prefix(module, state, prefix, *args):
    _moved(state, f"{prefix}{_CHECKPOINT_PREFIX}", prefix)
    return state


def _with_prefix(module, state, prefix, *args):
    _moved(state, prefix, f"{prefix}{_CHECKPOINT_PREFIX}")


class OffloadWrapper(ActivationWrapper):
    """A module whose saved tensors wait for backward in the memory of the CPU."""

    def forward(self, *args, **kwargs):
        """The module's forward pass."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """The module's forward pass is computed again in backward."""

    def __init__(self, mod, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **checkpoint_fn_kwargs):
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = checkpoint
            checkpoint_fn_kwargs["use_reentrant"] = checkpoint_impl is CheckpointImpl.REENTRANT
        self.checkpoint_fn = functools.partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args, **kwargs):
        """The module's forward pass."""
        if self.checkpoint_impl is not CheckpointImpl.REENTRANT or not kwargs:
            return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)
        names, count = list(kwargs), len(args)

        def positional(*values):
            return self._checkpoint_wrapped_module(*values[:count], **dict(zip(names, values[count:], strict=True)))

        return self.checkpoint_fn(positional, *args, *kwargs.values())


def offload_wrapper(module):
    """The module with activations that wait in the memory of the CPU."""
    return OffloadWrapper(module)


def checkpoint_wrapper(module, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **checkpoint_fn_kwargs):
    """The module with activations that are computed again in backward."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda _: True, auto_wrap_policy=None
):
    """Wrap the modules inside of a model that a function or a policy chooses."""
    if isinstance(auto_wrap_policy, _Policy) and not callable(auto_wrap_policy):
        chosen = auto_wrap_policy._run_policy(model, ignored_modules=set(), root_kwargs={})
        _replaced(model, lambda module: checkpoint_wrapper_fn(module) if module in chosen else None, set())
        return
    if auto_wrap_policy is not None and not callable(auto_wrap_policy):
        raise ValueError(f"Expected {auto_wrap_policy} to be callable or be a pre-defined wrap policy")
    policy = auto_wrap_policy or functools.partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    _recursive_wrap(model, policy, checkpoint_wrapper_fn, set(), set(), only_wrap_children=True)
