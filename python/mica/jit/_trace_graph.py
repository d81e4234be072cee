"""What a module computes, as the graph that torch.jit._get_trace_graph hands to those who count operations.

The nodes are the operators that a dispatch mode sees, by the names that TorchScript gives them. Such a graph can be
read; it cannot be run.
"""

import mica
from mica._functions.families import own_name
from mica.overrides import TorchFunctionMode
from mica.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from mica.utils._pytree import tree_leaves

# TorchScript's tracer sees operators that torch decomposes further, with the same first arguments.
_NAMES = {
    "convolution": "_convolution", "native_batch_norm": "batch_norm", "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm", "_softmax": "softmax", "_log_softmax": "log_softmax",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "max_pool2d_with_indices": "max_pool2d", "_to_copy": "to", "_unsafe_view": "view",
}  # fmt: skip

_tracing = []  # the graphs that are being made, the innermost last


class Type:
    """The type of a value of the graph."""

    def __init__(self, value):
        self._value = value

    def kind(self):
        kinds = {bool: "BoolType", int: "IntType", float: "FloatType", str: "StringType", type(None): "NoneType"}
        if isinstance(self._value, mica.Tensor):
            return "TensorType"
        return "ListType" if isinstance(self._value, (list, tuple)) else kinds.get(type(self._value), "AnyType")

    def sizes(self):
        return list(self._value.shape)

    def dim(self):
        return self._value.dim()

    def scalarType(self):
        return str(self._value.dtype).removeprefix("torch.").capitalize()


class Value:
    """What goes into a node or comes out of it: its form is kept, and a number's value."""

    def __init__(self, value, node=None):
        is_tensor = isinstance(value, mica.Tensor)
        # Only the shape of a tensor is kept: a graph does not hold elements.
        self._value = value.detach().to("meta") if is_tensor and value.device.type != "meta" else value
        self._node = node

    def isCompleteTensor(self):
        return isinstance(self._value, mica.Tensor)

    def type(self):
        return Type(self._value)

    def toIValue(self):
        return None if self.isCompleteTensor() else self._value

    def node(self):
        if self._node is None:
            items = self._value if isinstance(self._value, (list, tuple)) else []
            kind = "prim::ListConstruct" if isinstance(self._value, (list, tuple)) else "prim::Constant"
            self._node = Node(kind, items, [], "")
        return self._node


class Node:
    """One operator that ran."""

    def __init__(self, kind, inputs, outputs, scope):
        self._kind, self._scope = kind, scope
        self._inputs = [Value(v) for v in inputs]
        self._outputs = [Value(v, self) for v in outputs]

    def kind(self):
        return self._kind

    def scopeName(self):
        return self._scope

    def inputs(self):
        return iter(self._inputs)

    def outputs(self):
        return iter(self._outputs)

    def inputsSize(self):
        return len(self._inputs)

    def outputsSize(self):
        return len(self._outputs)

    def __repr__(self):
        return f"{self._kind}({', '.join(str(v.type().kind()) for v in self._inputs)}), scope: {self._scope}"


class Graph:
    """The nodes of a traced call, in the order in which they ran."""

    def __init__(self):
        self._nodes, self._scopes = [], []

    def nodes(self):
        return iter(self._nodes)

    # ---- what a tracing state is asked for
    def push_scope(self, name):
        self._scopes.append(name)

    def pop_scope(self):
        self._scopes.pop()

    def current_scope(self):
        return "/".join(self._scopes)


class _Recorder(TorchDispatchMode):
    def __init__(self, graph):
        super().__init__()
        self._graph = graph
        self._transposed = {}  # id of w.t() -> (w.t(), w)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name == "detach":  # for a result that a node saves: it is not a call of the program
            return out
        if name == "t":
            self._transposed[id(out)] = (out, args[0])
            return out
        inputs = [*args, *(kwargs or {}).values()]
        # A product with a transposed weight is a linear layer.
        if name in ("addmm", "mm") and id(args[-1]) in self._transposed:
            weight = self._transposed[id(args[-1])][1]
            name, inputs = "linear", [args[-2], weight, args[0] if name == "addmm" else None]
        if name == "convolution":
            inputs += [False, False, True, True]
        self.note(name, inputs, out)
        return out

    def note(self, name, inputs, out):
        outputs = [t for t in tree_leaves(out) if isinstance(t, mica.Tensor)]
        with mica.no_grad():
            node = Node(f"aten::{_NAMES.get(name, name)}", inputs, outputs, self._graph.current_scope())
        self._graph._nodes.append(node)


class _Functions(TorchFunctionMode):
    """Sees the calls that TorchScript's tracer has as one node, and a dispatch mode in parts."""

    _sees_operators = False

    _WHOLE = {name: name for name in ("linear", "matmul", "einsum", "layer_norm", "group_norm", "adaptive_avg_pool1d",
                                      "adaptive_avg_pool2d", "adaptive_avg_pool3d")} | {"__matmul__": "matmul"}  # fmt: skip

    def __init__(self, recorder):
        self._recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = self._WHOLE.get(own_name(func))
        if name is None:
            return func(*args, **(kwargs or {}))
        with _disable_current_modes():
            out = func(*args, **(kwargs or {}))
            if name == "einsum" and not isinstance(args[1], (list, tuple)):
                args = (args[0], list(args[1:]))
            self._recorder.note(name, [*args, *(kwargs or {}).values()], out)
        return out


def tracing_state():
    """The graph that is being made, or None."""
    return _tracing[-1] if _tracing else None


def get_trace_graph(f, args=(), kwargs=None, strict=True, _force_outplace=False, return_inputs=False,
                    _return_inputs_states=False):  # fmt: skip
    """(graph, outputs) of f(*args, **kwargs)."""
    graph = Graph()
    _tracing.append(graph)
    try:
        with _Recorder(graph) as recorder, _Functions(recorder):
            outputs = f(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        _tracing.pop()
    return (graph, outputs, args) if return_inputs else (graph, outputs)
