"""The backward graph: nodes, edges, hooks on several gradients, what is kept for backward."""

import abc
import contextlib
import dataclasses
import functools
import threading
from collections import namedtuple
from collections.abc import Iterable

from mica import _C
from mica.utils.hooks import RemovableHandle

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
    "set_warn_on_accumulate_grad_stream_mismatch",
]


class Node(abc.ABC):
    """What every node of a graph is an instance of: `isinstance(x.grad_fn, Node)`. No node's class is derived from it."""

    @classmethod
    def __subclasshook__(cls, subclass):
        return True if cls is Node and issubclass(subclass, _C._Node) else NotImplemented

    @abc.abstractmethod
    def name(self):
        """The node's name, such as AddBackward0."""
        raise NotImplementedError

    @property
    @abc.abstractmethod
    def next_functions(self):
        """The nodes that gradients flow on to, with their input numbers."""
        raise NotImplementedError

    @abc.abstractmethod
    def metadata(self):
        """A dict for programs to use."""
        raise NotImplementedError

    @abc.abstractmethod
    def register_hook(self, fn):
        """Call fn(grad_inputs, grad_outputs) after the node has run; it may return new grad_inputs."""
        raise NotImplementedError

    @abc.abstractmethod
    def register_prehook(self, fn):
        """Call fn(grad_outputs) before the node runs; it may return new ones."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class _InputMetadata:
    """The shape, dtype and device that a gradient needs to come into a node."""

    dtype: object
    device: object
    shape: object
    is_nested_tensor: bool = False
    is_cpp_nested_tensor: bool = False

    def __post_init__(self):
        object.__setattr__(self, "shape", _C.Size(self.shape))


class GradientEdge(namedtuple("GradientEdge", ["node", "output_nr", "ownership_token"], defaults=[None])):
    """Where the gradient of a tensor flows: an output of a node. Stands for the tensor in grad() and backward()."""

    __slots__ = ()


def get_gradient_edge(tensor):
    """The edge of a tensor, which can be kept instead of the tensor and its memory."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*_C._gradient_edge(tensor))


def increment_version(tensor):
    """Tell autograd that the memory of a tensor, or of several, was changed behind its back."""
    for each in [tensor] if isinstance(tensor, _C.Tensor) or not isinstance(tensor, Iterable) else tensor:
        if not each.is_inference():  # inference tensors count no versions
            _C._increment_version(each)


class saved_tensors_hooks:
    """Within a `with` block, keep pack_hook(x) for backward in place of x, and use unpack_hook of it there."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self):
        _C._push_saved_tensor_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exception):
        _C._pop_saved_tensor_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Keep what backward needs in the memory of the host."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        def pack(tensor):
            if not pin_memory:
                return tensor.device, tensor.cpu()
            pinned = _C._accelerator() is not None and not tensor.is_sparse
            packed = _C.empty(tensor.size(), dtype=tensor.dtype, layout=tensor.layout, pin_memory=pinned)
            packed.copy_(tensor)
            return tensor.device, packed

        def unpack(packed):
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


def allow_mutation_on_saved_tensors():
    """Within a `with` block, tensors that backward needs may be changed in place: what is changed is copied before.

    Backward passes of what the block computes belong into it too.
    """
    from mica.autograd._mutation import allowed

    return allowed()


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    """Within a `with` block, using saved_tensors_hooks is an error with this message."""
    before = _C._disable_saved_tensor_hooks(error_message)
    try:
        yield
    finally:
        _C._disable_saved_tensor_hooks(before)


class _MultiHandle(RemovableHandle):
    """Takes off the hooks of several tensors."""

    def __init__(self, handles):
        self.handles = handles

    def remove(self):
        for handle in self.handles:
            handle.remove()

    def __getstate__(self):
        return self.handles

    def __setstate__(self, state):
        self.handles = state


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Call fn once per backward pass for the gradients of several tensors.

    mode "all": fn(grads), a list, when all have come, or at the end of a pass that did not reach all of them, with None
    for those. mode "any": fn(grad), with the first that comes; tensors that need no gradient are passed over.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = list(tensors)
    if mode == "any":
        tensors = [tensor for tensor in tensors if tensor.requires_grad]
    elif not all(tensor.requires_grad for tensor in tensors):
        raise AssertionError("Expected gradient function to be set")
    lock = threading.Lock()
    passes = {}

    def collect(index, grad):
        if grad is None:
            return
        task = _C._current_graph_task_id()
        with lock:
            first = task not in passes
            grads = passes.setdefault(task, [None] * len(tensors))
            grads[index] = grad
            complete = all(each is not None for each in grads)
        if mode == "any":
            if first:
                _C._queue_callback(functools.partial(passes.pop, task, None))
                fn(grad)
            return
        if first:
            _C._queue_callback(functools.partial(deliver, task))
        if complete:
            deliver(task)

    def deliver(task):
        with lock:
            grads = passes.pop(task, None)
        if grads is not None:
            fn(grads)

    handles = [tensor.register_hook(functools.partial(collect, i)) for i, tensor in enumerate(tensors)]
    return _MultiHandle(handles)


def set_warn_on_accumulate_grad_stream_mismatch(enabled):
    """With False: do not warn of gradients that were made on another stream than the leaf's. There is no such warning,
    so that True raises NotImplementedError."""
    if not isinstance(enabled, bool):
        raise RuntimeError(f"enabled must be a bool, but got {type(enabled).__name__}")
    if enabled:
        raise NotImplementedError("Mica does not warn of gradients of other streams: leave the call out")
