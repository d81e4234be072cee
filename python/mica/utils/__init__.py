"""Utilities that programs use beside tensors."""

import importlib
import os

from mica.utils import dlpack, hooks

_SUBMODULES = (
    "benchmark", "checkpoint", "collect_env", "cpp_extension", "data", "deterministic", "flop_counter", "model_zoo",
    "module_tracker", "serialization", "tensorboard", "weak",
)  # fmt: skip

__all__ = ["cmake_prefix_path", "dlpack", "hooks", "swap_tensors", *_SUBMODULES]

# What CMAKE_PREFIX_PATH has to name for find_package(mica), where Mica was installed as a wheel.
cmake_prefix_path = os.path.dirname(os.path.dirname(__file__))


def swap_tensors(t1, t2):
    """Exchange what two tensor objects stand for: data, gradient, type and attributes. The objects stay who they are."""
    import copyreg
    import weakref

    from mica import _C, autograd

    for name, tensor in (("t1", t1), ("t2", t2)):
        if not isinstance(tensor, _C.TensorBase):
            raise TypeError(f"swap_tensors() takes tensors, but {name} is of type {type(tensor).__name__}")
    autograd._compute_recorded()  # a capture of graphs knows tensors by weak references
    for name, tensor in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(tensor):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    slots = [set(copyreg._slotnames(type(t))) for t in (t1, t2)]
    if slots[0] != slots[1]:
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    for name, tensor in (("t1", t1), ("t2", t2)):
        _check_swappable(name, tensor)
    values = [{name: getattr(t, name) for name in slots[0] if hasattr(t, name)} for t in (t1, t2)]
    if type(t1) is not type(t2):
        t1.__class__, t2.__class__ = type(t2), type(t1)
    for tensor, others in ((t1, values[1]), (t2, values[0])):
        for name in slots[0]:
            if name in others:
                setattr(tensor, name, others[name])
            elif hasattr(tensor, name):
                delattr(tensor, name)
    _C._swap_tensor_impl(t1, t2)


def _poisoned(grad_outputs):
    raise RuntimeError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: a tensor of this graph stands for "
        "another one now. Convert modules before forward, or after backward."
    )


def _check_swappable(name, tensor):
    """Refuse a tensor that others hold; a graph that ends at it must not be run any more."""
    from mica.autograd import graph

    count = tensor._use_count()
    if count == 1:
        return
    if count == 2 and tensor.is_leaf:
        node = graph.get_gradient_edge(tensor).node
        if tensor._use_count() == 2:
            node.register_prehook(_poisoned)
            return
    raise RuntimeError(
        f"Expected use_count of {name} to be 1 or 2 with an AccumulateGrad node but got {count} make sure you are not "
        "holding references to the tensor in other places."
    )


def set_module(obj, mod):
    """Say that an object belongs to a module."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def __getattr__(name):
    if name in (*_SUBMODULES, "_pytree", "_python_dispatch"):
        return importlib.import_module(f"mica.utils.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
