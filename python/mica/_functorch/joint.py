"""A function and its gradients as one function, of which a graph is made."""

import contextlib

import mica
from mica import _C

__all__ = ["casts_of_backward", "joint_of", "listed", "needs_gradient", "without_autocast"]


def needs_gradient(tensor):
    return isinstance(tensor, _C.TensorBase) and tensor.requires_grad


def listed(made):
    return list(made) if isinstance(made, (list, tuple)) else [made]


@contextlib.contextmanager
def without_autocast():
    """A block in which nothing is cast. A graph has the casts that were made as it was traced, and no others."""
    with contextlib.ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if mica.is_autocast_enabled(kind):
                stack.enter_context(mica.amp.autocast(kind, enabled=False))
        yield


@contextlib.contextmanager
def casts_of_backward():
    """A block for the backward pass of a trace: its autocast is what torch._functorch.config.backward_pass_autocast says."""
    from mica._functorch import config

    setting = config.backward_pass_autocast
    if setting == "same_as_forward":
        yield
        return
    options = [] if setting == "off" else setting
    if not isinstance(options, list):
        raise AssertionError(f"expected backward_pass_autocast to be a list, got {type(options)}")
    with without_autocast(), contextlib.ExitStack() as stack:
        for each in options:
            if not isinstance(each, dict):
                raise AssertionError(f"expected kwargs to be a dict, got {type(each)}")
            stack.enter_context(mica.amp.autocast(**each))
        yield


def joint_of(function, chosen=None):
    """A function of (inputs, gradients of the outputs) that returns the outputs, and the gradients of the inputs.

    `chosen` says for each output whether a gradient comes for it; without it, those that require grad get one.
    """

    def joint(primals, tangents):
        with mica.enable_grad():
            outputs = listed(function(*primals))
            wanted = [p for p in primals if needs_gradient(p)]
            differentiable = [o for i, o in enumerate(outputs) if (needs_gradient(o) if chosen is None else chosen[i])]
            pairs = [(o, t) for o, t in zip(differentiable, tangents, strict=True) if o.requires_grad]
            gradients = iter(())
            if wanted and pairs:
                made, tangents = [o for o, _ in pairs], [t for _, t in pairs]
                with casts_of_backward():
                    gradients = iter(mica.autograd.grad(made, wanted, tangents, allow_unused=True))
        return outputs, [next(gradients, None) if needs_gradient(p) else None for p in primals]

    return joint
