"""What a captured call has recorded so far: the nodes of its graph, the inputs that these read, and the modes they are in.

capture.py decides what is recorded, and when it is run.
"""

import enum
import weakref

import mica
from mica import _C
from mica._dynamo import _capture_names as _names
from mica._dynamo import _open_inputs as _open
from mica._dynamo._open_numbers import OpenFloat, OpenNumber
from mica._dynamo.exc import InternalTorchDynamoError
from mica._subclasses import fake_tensor as _fakes
from mica.amp.autocast_mode import _enter_autocast, _exit_autocast
from mica.fx.graph import Graph
from mica.fx.traceback import current_meta
from mica.overrides import TorchFunctionMode
from mica.utils._pytree import tree_leaves

__all__ = ["RecordedGraph"]


class RecordedGraph(TorchFunctionMode):
    """The graph of a captured call, from one break to the next."""

    def __init__(self, owner, names, fakes):
        super().__init__()
        self.owner, self.fakes, self._names = owner, fakes, names
        self._open = _open.OpenInputs(owner, fakes, names)
        self._begin()
        self._first_casts = _names.modes_now()[0]  # the first graph begins with the function

    def _begin(self):
        self.graph = Graph()
        self._inputs, self._nodes, self._promises = [], {}, {}  # _nodes: id -> (a reference, the node)
        self._modes, self._grad, self._random = None, None, None
        self._casts = []  # (modes before, nodes that entered) of each block of autocast
        self._size_nodes, self._returned = None, []
        self.count = 0

    # ---- modes

    def _note_modes(self):
        casts, *others = _names.modes_now()
        self._modes, self._grad = (self._first_casts or casts, *others), mica.is_grad_enabled()
        self._first_modes, self._first_grad = self._modes, self._grad

    def _cast_as(self, modes):
        """Nodes that enter or leave autocast, as torch has them. Blocks within one another are left in their order."""
        if any(before == modes for before, _ in self._casts):
            while self._modes != modes:
                self._leave_cast()
            return
        entered = []
        for (kind, enabled, dtype), (_, _, before) in zip(modes[0], self._modes[0], strict=True):
            if (kind, enabled, dtype) not in self._modes[0]:
                given = (kind, dtype if enabled or dtype != before else None, enabled, None)
                entered.append(self._plain_node(_enter_autocast, given))
        self._casts.append((self._modes, entered))
        self._modes = modes

    def _leave_cast(self):
        self._modes, entered = self._casts.pop()
        for node in reversed(entered):
            self._plain_node(_exit_autocast, (node,))

    def _restore_modes(self):
        """Let the graph end in the modes that it began in."""
        while self._casts:
            self._leave_cast()
        if self._grad != self._first_grad:
            self.graph.create_node("call_function", _C._set_grad_enabled, (self._first_grad,), {}, "_set_grad_enabled")

    def _plain_node(self, function, args):
        return self.graph.create_node("call_function", function, args, {}, function.__name__)

    # ---- calls and their results

    def _fake(self, tensor):
        return self._open.fake(tensor, self._names.of(tensor))

    def _living(self):
        """[(promise, its node)] of the promises that the program still holds."""
        return [(made, self._nodes[key][1]) for key, ref in self._promises.items() if (made := ref()) is not None]

    def _node(self, func, args, kwargs):
        if mica.is_grad_enabled() != self._grad:
            self._grad = mica.is_grad_enabled()
            self.graph.create_node("call_function", _C._set_grad_enabled, (self._grad,), {}, "_set_grad_enabled")
        args, kwargs = self._argument(tuple(args)), self._argument(dict(kwargs))
        op, target, args, kwargs, name = _names.call(func, args, kwargs)
        self.count += 1
        node = self.graph.create_node(op, target, args, kwargs, name)
        node.meta["stack_trace"] = _names.user_line()
        return _annotated(node)

    def _named(self, out, node, originals):
        """The result with its tensors known by nodes; a tensor that was changed in place stays the object it is."""
        if isinstance(out, _C.TensorBase):
            node.meta["example_value"] = node.meta["val"] = self._likeness(out)
            if id(out) in originals:
                return originals[id(out)]
            if self._known_node(out) is None:
                self._promises[id(out)] = weakref.ref(out)
                self._nodes[id(out)] = (self._promises[id(out)], node)
            return out
        if isinstance(out, (list, tuple)):
            items = []
            for i, each in enumerate(out):
                if any(isinstance(leaf, _C.TensorBase) for leaf in tree_leaves(each)):
                    item = self.graph.create_node("call_function", _names.getitem, (node, i), {}, "getitem")
                    each = self._named(each, item, originals)
                items.append(each)
            same = all(a is b for a, b in zip(items, out, strict=True))
            return out if same else type(out)(items) if type(out) in (list, tuple) else type(out)(tuple(items))
        return out

    def _likeness(self, fake):
        """Another fake tensor of the same kind, which a node can hold without keeping the promise alive."""
        made = _fakes._as_fake(_fakes._plain(fake), self.fakes, fake.fake_device)
        if "_sizes" in fake.__dict__:
            made._sizes, made._others = fake._sizes, fake._others
        return made

    def _argument(self, value):
        if isinstance(value, _C.TensorBase):
            return self._node_of(value)
        if isinstance(value, (list, tuple)):
            items = [self._argument(each) for each in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {key: self._argument(each) for key, each in value.items()}
        if hasattr(value, "dtype") and type(value).__module__ == "numpy" and not hasattr(value, "__len__"):
            return value.item()  # a number of NumPy's
        if isinstance(value, slice):
            return slice(*map(self._bound, (value.start, value.stop, value.step)))
        if isinstance(value, enum.IntEnum):
            return int(value)
        if type(value) is OpenFloat:
            return float(value)
        return self._open_number(value) if type(value) is OpenNumber else value

    def _bound(self, value):
        """An end of a slice. Of a tensor that has been computed the number was asked for, which decides sizes: no other tensor
        may take its place when the graph runs again."""
        if isinstance(value, _C.TensorBase) and not isinstance(value, _fakes.FakeTensor) and value.numel() == 1:
            return int(value)
        return self._argument(value)

    def _open_number(self, value):
        """The node that computes a number which follows from open sizes; the number, if those are of another call."""
        if value.sym.node.shape_env is not self.fakes.shape_env:
            return int(value)
        self._add_sizes(self._open.symbols(value.sym))
        return int(value) if self._size_nodes is None else self._size_nodes.argument(value.sym)

    # ---- inputs

    def _add_sizes(self, symbols):
        """Let open sizes be inputs of the graph."""
        for symbol in symbols:
            if self._size_nodes is None:
                self._size_nodes = self._open.nodes(self.graph)
            if not self._size_nodes.has(symbol):
                given = self._open.sources[symbol]
                node = self._placeholder(str(symbol), str(symbol), self._open.number(symbol))
                self._size_nodes.add_input(node, node.meta["val"])
                self._inputs.append((given, None, node))

    def _known_node(self, tensor):
        """The node that computes a tensor. Another tensor, which has gone, may have had its id."""
        reference, node = self._nodes.get(id(tensor), (None, None))
        return node if reference is not None and reference() is tensor else None

    def _node_of(self, tensor):
        node = self._known_node(tensor)
        if node is None:
            if isinstance(tensor, _fakes.FakeTensor) and tensor.fake_mode is self.fakes:
                raise InternalTorchDynamoError(
                    "torch.compile with a backend of one's own: a tensor was made by a call that Mica did not see"
                )
            fake = self._fake(tensor)
            self._add_sizes(self._open.symbols(fake))
            target = self._names.of(tensor)
            node = self._placeholder(target, target.lower(), fake)
            self._inputs.append((tensor, _names.version_of(tensor), node))
            self._nodes[id(tensor)] = (lambda: tensor, node)
        return node

    def _placeholder(self, target, name, value):
        before = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
        with self.graph.inserting_before(before) if before is not None else _names.nothing():
            node = self.graph.create_node("placeholder", target, (), {}, name)
        node.meta["example_value"] = node.meta["val"] = value
        return _annotated(node)

    def _kind_of(self, given, node):
        if isinstance(given, _open.SizeInput):
            return str(node.meta["val"].node.expr)
        return self._open.kind(node.meta["val"], given, _names.kind_of_input)


def _annotated(node):
    """A new node, with what the program says of the nodes that are made now: fx.traceback.annotate."""
    if said := current_meta.get("custom"):
        node.meta["custom"] = dict(said)
    return node
