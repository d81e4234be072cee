"""Handles that take hooks off, and the hooks that modules put on the gradients of their inputs and outputs."""

import warnings
import weakref
from collections import OrderedDict

from mica import _C


class _HandleMeta(type):
    """A hook that the engine keeps has a handle of the engine's: it counts as a RemovableHandle."""

    def __instancecheck__(cls, other):
        return super().__instancecheck__(other) or (cls is RemovableHandle and isinstance(other, _C._RemovableHandle))


class RemovableHandle(metaclass=_HandleMeta):
    """Takes a hook out of the dict that holds it; does not keep the dict's owner alive."""

    next_id = 0

    def __init__(self, hooks_dict, *, extra_dict=None):
        extra = [] if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.extra_dict_ref = tuple(weakref.ref(each) for each in extra)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1

    def remove(self):
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = reference()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self):
        return self.hooks_dict_ref(), self.id, tuple(reference() for reference in self.extra_dict_ref)

    def __setstate__(self, state):
        hooks, self.id, *extra = state
        self.hooks_dict_ref = weakref.ref(OrderedDict() if hooks is None else hooks)
        self.extra_dict_ref = tuple(weakref.ref(each) for each in (extra[0] if extra and extra[0] else ()))
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


def unserializable_hook(function):
    """Mark a hook that is not to be pickled with what it hangs on."""
    function.__torch_unserializable__ = True
    return function


def warn_if_has_hooks(tensor):
    """Say which hooks of a tensor a pickle of it leaves out."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the "
                "function with @torch.utils.hooks.unserializable_hook to suppress this warning",
                stacklevel=2,
            )


def _spread(positions, values, count):
    """A tuple of `count` entries: the values at their positions, None elsewhere."""
    entries = [None] * count
    for position, value in zip(positions, values, strict=True):
        entries[position] = value
    return tuple(entries)


class BackwardHook:
    """The full backward hooks of one call of a module.

    The call's input tensors pass through one node and its output tensors through another. When gradients reach the
    output node they are kept (after the pre-hooks); when they leave the input node, the hooks see both.
    """

    def __init__(self, module, user_hooks, user_pre_hooks):
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs = None
        self.input_count = self.output_count = -1
        self.input_positions = self.output_positions = None

    def setup_input_hook(self, args):
        args, self.input_positions = self._through_node(args, self._leave_inputs)
        self.input_count = len(args)
        return args

    def setup_output_hook(self, result):
        results = result if isinstance(result, tuple) else (result,)
        results, self.output_positions = self._through_node(results, self._reach_outputs)
        self.output_count = len(results)
        return results if isinstance(result, tuple) else results[0]

    @staticmethod
    def _through_node(values, hook):
        """The values, with the tensors among them made the outputs of one node that has the hook; and where they are."""
        positions = [i for i, value in enumerate(values) if isinstance(value, _C.Tensor)]
        if not (_C.is_grad_enabled() and any(values[i].requires_grad for i in positions)):
            return values, None
        from mica.nn.modules._functions import BackwardHookFunction

        passed = BackwardHookFunction.apply(*(values[i] for i in positions))
        node = next(each.grad_fn for each in passed if each.grad_fn is not None)
        node.register_hook(hook)
        entries = list(values)
        for position, value in zip(positions, passed, strict=True):
            entries[position] = value
        # A named tuple is made from its entries one by one.
        return tuple(entries) if type(values) is tuple else type(values)(*entries), positions

    def _leave_inputs(self, grad_inputs, _):
        if self.grad_outputs is None:  # no gradient has reached the outputs in this pass
            return None
        grads = _spread(self.input_positions, grad_inputs, self.input_count)
        for hook in self.user_hooks:
            changed = hook(self.module, grads, self.grad_outputs)
            if changed is None:
                continue
            if len(changed) != len(grads):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of grad_input, got {len(changed)}, but expected "
                    f"{len(grads)}"
                )
            grads = changed
        self.grad_outputs = None
        return tuple(grads[i] for i in self.input_positions)

    def _reach_outputs(self, _, grad_outputs):
        grads = _spread(self.output_positions, grad_outputs, self.output_count)
        for hook in self.user_pre_hooks:
            changed = hook(self.module, grads)
            if changed is None:
                continue
            if len(changed) != len(grads):
                raise RuntimeError(
                    f"Backward pre hook returned an invalid number of grad_output, got {len(changed)}, but expected "
                    f"{len(grads)}"
                )
            grads = changed
        self.grad_outputs = grads
        if self.input_positions is None:
            self._run_without_inputs(grads)
        return tuple(grads[i] for i in self.output_positions)

    def _run_without_inputs(self, grads):
        """Run the hooks now, because no input requires a gradient and no node of theirs will run later."""
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
            "require gradients.",
            stacklevel=5,
        )
        nothing = (None,) * self.input_count
        for hook in self.user_hooks:
            changed = hook(self.module, nothing, grads)
            if changed is not None and not (isinstance(changed, tuple) and all(each is None for each in changed)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients."
                )
        self.grad_outputs = None
