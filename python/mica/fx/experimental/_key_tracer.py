"""The graph of a trace of make_fx: which node stands for which tensor, and the constants that the graph holds."""

import threading

import mica
from mica import _C
from mica.fx._symbolic_trace import Tracer
from mica.fx.experimental._proxy_arguments import alias_key
from mica.fx.graph import Graph
from mica.utils._python_dispatch import _disable_current_modes
from mica.utils._pytree import tree_map
from mica.utils.weak import WeakIdKeyDictionary

__all__ = ["PythonKeyTracer", "extract_val"]

_local = threading.local()


class PythonKeyTracer(Tracer):
    """Holds the graph of a trace, and the tensors that it reads and nobody gave it."""

    def __init__(self, around=None):
        super().__init__(autowrap_modules=())
        self._around = around  # the tracer of the graph that this one's graph is in
        self.graph, self.root = Graph(tracer_cls=PythonKeyTracer), mica.nn.Module()
        self.tensor_tracker, self.by_alias, self._kept = WeakIdKeyDictionary(), {}, []
        self._constants = WeakIdKeyDictionary()
        self._other_passes = _C._graph_tasks_begun()  # before this trace, and within operators

    # ---- backward passes

    @property
    def has_passes(self):
        """Whether the function has run a backward pass: what such a pass makes in one piece is no constant."""
        return _C._graph_tasks_begun() > self._other_passes

    def leave_out_passes(self, count):
        """Operators that are one node may differentiate others to compute their results."""
        self._other_passes += count

    # ---- nodes of tensors

    def bind(self, tensor, node):
        self.tensor_tracker[tensor] = node
        key = alias_key(tensor)
        if key is not None:
            self.by_alias[key] = (node, tensor)

    def bound(self, tensor):
        """The node that a tensor is known by, or None."""
        node = self.tensor_tracker.get(tensor)
        return self.by_alias.get(alias_key(tensor), (None,))[0] if node is None else node

    def knows(self, tensor):
        """Whether this graph, or one around it, has a node for a tensor."""
        if self.bound(tensor) is not None or self._constants.get(tensor) is not None:
            return True
        return self._around is not None and self._around.knows(tensor)

    def node_of(self, tensor):
        """The node of a tensor; one that is not known becomes an attribute of the graph's module."""
        node = self.bound(tensor)
        if node is not None:
            return node
        if (known := self._constants.get(tensor)) is not None:
            again = self.graph.create_node("get_attr", known.target)
            again.meta = dict(known.meta)
            return again
        is_parameter = isinstance(tensor, mica.nn.Parameter)
        if self.has_passes and not is_parameter and not self.knows(tensor) and not _is_uniform(tensor):
            raise NotImplementedError(
                "a backward pass computes with a tensor that no operator was seen to make: a part of the program is computed "
                "in one piece there, which a graph of operators cannot hold. torch.export records such calls"
            )
        prefix = "_param_constant" if is_parameter else "_tensor_constant"
        number = sum(name.startswith(prefix) for name in (*self.root._parameters, *self.root._buffers))
        if is_parameter:
            self.root.register_parameter(f"{prefix}{number}", tensor)
        else:
            self.root.register_buffer(f"{prefix}{number}", tensor)
        node = self.graph.create_node("get_attr", f"{prefix}{number}")
        node.meta["val"] = extract_val(tensor)
        self._constants[tensor] = node
        self._kept.append(tensor)
        return node

    def erase(self, nodes, constants):
        """Take nodes and constants back, and what is known by them."""
        for tensor in [tensor for tensor in self.tensor_tracker if self.tensor_tracker[tensor] in nodes]:
            del self.tensor_tracker[tensor]
        self.by_alias = {key: known for key, known in self.by_alias.items() if known[0] not in nodes}
        for name in constants:
            tensor = getattr(self.root, name)
            delattr(self.root, name)
            if tensor in self._constants:
                del self._constants[tensor]
        for node in nodes:
            self.graph.erase_node(node)


def _is_uniform(tensor):
    """Whether all elements are equal, as those of zeros are that the engine begins a sum with."""
    if hasattr(tensor, "fake_mode") or tensor.device.type == "meta":
        return tensor.numel() <= 1
    with _disable_current_modes(), _C.DisableTorchFunction(), mica.no_grad():
        if tensor.layout is not mica.strided:
            return False
        return tensor.numel() <= 1 or bool(mica.eq(tensor, tensor.flatten()[0]).all())


def extract_val(value, include_real=False):
    """What a node's meta data holds of a value: a fake tensor of it."""
    from mica._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    def seen(each):
        if not isinstance(each, _C.TensorBase) or isinstance(each, FakeTensor):
            return each
        if each.layout is not mica.strided:
            return each
        if not hasattr(_local, "vals"):
            _local.vals = FakeTensorMode(allow_non_fake_inputs=True)
        with _disable_current_modes():
            strides = [abs(step) for step in each.stride()]  # a flipped tensor, which is a view here
            meta = _C.empty_strided(each.shape, strides, dtype=each.dtype, device="meta")
        return FakeTensor(_local.vals, meta, each.device)

    return tree_map(seen, value)
