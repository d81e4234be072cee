"""What nodes of exported graphs are called and know of their values, and how a call is seen as the operators it is made of."""

import builtins
import re

import mica
from mica import _C
from mica._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from mica.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

__all__ = ["Parts", "Unseen", "as_identifier", "meta_of", "placeholder"]

_VALS = FakeTensorMode(allow_non_fake_inputs=True)  # whose fake tensors nodes have as their values


def as_identifier(path):
    """The path of a parameter as a name of Python's, in small letters as torch's are."""
    return re.sub(r"\W", "_", path).lower()


def placeholder(graph, name):
    """A placeholder of this name, even if Python has a function of that name, as of `input`."""
    node = graph.create_node("placeholder", name, (), {}, name)
    if node.name != name and hasattr(builtins, name) and all(each.name != name for each in graph.nodes):
        node.name = name
        graph._graph_namespace._rename_object(node, name)
    node.target = node.name  # another one may have that name
    return node


def meta_of(value):
    """A tensor without data of the same shape, strides and dtype: a fake one."""
    if not isinstance(value, _C.TensorBase) or value.layout != mica.strided or isinstance(value, FakeTensor):
        return value
    with _C.DisableTorchFunction(), _disable_current_modes():
        meta = mica.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return FakeTensor(_VALS, meta, value.device)


class Unseen(Exception):
    """A part of a call reads a tensor that no seen part has made."""


class Parts(TorchDispatchMode):
    """Records the operators that a call is made of."""

    def __init__(self, recorder):
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        out = func(*args, **kwargs)
        place = getattr(args[0] if args else None, "fake_device", None)
        if place is not None and str(kwargs.get("device")) == "meta" != place.type:
            kwargs["device"] = place  # the engine names the device that a fake tensor is on there
        self._recorder._record("call_function", func, args, kwargs, out, func.overloadpacket.__name__)
        return out
