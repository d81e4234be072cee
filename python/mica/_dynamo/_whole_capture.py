"""A call of a function that is recorded as one graph and not computed: what torch._dynamo.export makes its modules of.

Numbers and sizes that only data decide are symbols (item, nonzero, masks), and torch.cond and torch.while_loop are nodes
with graphs of their own.
"""

import contextlib

import mica
from mica import _C
from mica._dynamo import _capture_names as _names
from mica._dynamo import _open_inputs as _open
from mica._dynamo.capture import Capture
from mica._dynamo.exc import Unsupported
from mica._subclasses import of_data
from mica._subclasses.fake_tensor import FakeTensor
from mica._subclasses.open_sizes import OpenSize
from mica.fx.experimental.symbolic_shapes import ConstraintViolationError, ShapeEnv
from mica.fx.graph import Graph
from mica.fx.node import Node
from mica.utils._pytree import tree_flatten, tree_leaves, tree_map_only

__all__ = ["Owner", "WholeCapture", "current"]

_CONSTANTS = (
    int, float, bool, str, bytes, complex, type(None), type(Ellipsis), range, mica.Size, mica.dtype, mica.device,
    mica.layout, mica.memory_format,
)  # fmt: skip
_OPEN = (mica.SymInt, mica.SymFloat, mica.SymBool)
_GRAPHS = {"true_graph": "cond_true", "false_graph": "cond_false", "while_loop_cond_graph": "cond_fn",
           "while_loop_body_graph": "body_fn", "body_graph": "map_body", "scan_combine_graph": "scan_combine_fn"}  # fmt: skip


def current():
    """The capture of this kind that is under way on this thread, or None."""
    capture = _names.active()
    return capture if isinstance(capture, WholeCapture) and capture.active else None


class Again(Exception):
    """A size has turned out to be fixed: the call is to be recorded once more with what `presets` says."""

    def __init__(self, presets):
        super().__init__(presets)
        self.presets = presets


class Owner:
    """The function that a capture belongs to, with what the capture asks about it."""

    fullgraph, sizes_apart = True, True

    def __init__(self, function, dynamic):
        self.function, self.dynamic = function, dynamic
        self.seen, self.apart, self.fixed = {}, set(), set()


class WholeCapture(Capture):
    """A call that is recorded and not computed. What asks for a value is refused."""

    def __init__(self, owner, args, kwargs, presets=()):
        super().__init__(owner, args, kwargs)
        self._open.shows_numbers, self._open.presets = False, dict(presets)
        self._note_modes()  # the graph runs in the modes of its caller
        self.fakes.items, self.modules, self._around = self._item, {}, []

    def end(self):
        super().end()
        self.fakes.items = None

    def _compute_again(self):
        if self.fakes.shape_env.presets.items() <= self._open.presets.items():
            super()._compute_again()
        else:
            raise Again(self.fakes.shape_env.presets)

    # ---- what only data decide

    def _is_let_pass(self):
        return False  # nothing can run

    def _env(self):
        if self.fakes.shape_env is None:
            self.fakes.shape_env = ShapeEnv()
            self.fakes.shape_env.presets = dict(self._open.presets)
        if self not in self.fakes.shape_env.recorders:
            self.fakes.shape_env.recorders.append(self)
        if self._size_nodes is None:
            self._size_nodes = self._open.nodes(self.graph)
        return self.fakes.shape_env

    def _item(self, tensor):
        """tensor.item() as an open number."""
        if tensor.numel() != 1:
            raise RuntimeError(f"a Tensor with {tensor.numel()} elements cannot be converted to Scalar")
        fake = tensor if isinstance(tensor, FakeTensor) else self.aside(self._fake, (tensor,), {})
        number = of_data.number(fake, self._env())
        if number is None or isinstance(number, mica.SymBool):
            self.flush("item() asks for values")
        self._size_nodes.add_number(self._node(_C.Tensor.item, (tensor,), {}), number)
        return number

    def note_statement(self, relation):
        """The function has stated something of numbers that only data decide."""
        self._size_nodes.assertion(relation)

    def _run_now(self, func, args, kwargs, reason, whole=True):
        name, first = _names.name_of(func), args[0] if args else None
        if self.active and isinstance(first, _C.TensorBase):
            if name == "item":
                return self._item(first)
            if name == "tolist" and first.dim() < 2 and first.dtype is not mica.bool:
                with self:
                    return [each.item() for each in first.unbind()] if first.dim() else first.item()
            if name in of_data.NAMES or name == "__getitem__" or (name == "where" and len(args) == 1):
                self._env()
                tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, _C.TensorBase)]
                return self._recorded(func, args, kwargs, tensors, of_data=True)
        return super()._run_now(func, args, kwargs, reason, whole)

    def _recorded(self, func, args, kwargs, tensors, of_data=False):
        if not of_data and self._size_nodes is None and _has_masks(func, args):
            self._env()
        return super()._recorded(func, args, kwargs, tensors)

    def _named(self, out, node, originals):
        if isinstance(out, _C.TensorBase) and (env := self.fakes.shape_env) is not None and env.has_data():
            self._env()
            self._size_nodes.add_input(node, out)
        return super()._named(out, node, originals)

    def constant(self, function, args, kwargs):
        """The result of a function that is assumed to return the same value in each call: its value for the example."""
        if any(isinstance(leaf, (FakeTensor, *_OPEN)) for leaf in tree_leaves((args, kwargs))):
            self.flush(
                f"{getattr(function, '__name__', 'a function')} is to be constant, but its arguments are computed"
            )
        result = self.aside(function, args, kwargs)
        # A tensor of the example is a constant here, though it is an argument elsewhere.
        return tree_map_only(_C.TensorBase, lambda each: self.aside(_copied, (each,), {}), result)

    # ---- graphs of branches and loops

    def likeness(self, tensor):
        return self.aside(
            lambda: self._likeness(tensor if isinstance(tensor, FakeTensor) else self._fake(tensor)), (), {}
        )

    @contextlib.contextmanager
    def unrecorded(self):
        """A block whose calls are not recorded."""
        before, self.active = self.active, False
        try:
            yield
        finally:
            self.active = before

    def subgraph(self, function, leaves):
        """(graph, result, [(tensor, placeholder)]) of a function of tensors: those that it reads besides are placeholders."""
        before = (self.graph, self._inputs, self._nodes, self._promises, self._size_nodes)
        self._around.append(before)
        modules, self.modules = self.modules, {}
        self.graph, self._inputs, self._nodes, self._promises, self._size_nodes = Graph(), [], {}, {}, None
        graph = self.graph
        if self.fakes.shape_env is not None:
            self._size_nodes = self._open.nodes(graph)
        try:
            for i, leaf in enumerate(leaves):
                node = graph.create_node("placeholder", f"arg{i}_1", (), {}, f"arg{i}_1")
                if isinstance(leaf, _C.TensorBase):
                    node.meta["val"] = node.meta["example_value"] = self.likeness(leaf)
                    self._nodes[id(leaf)] = (lambda leaf=leaf: leaf, node)
                    if self._size_nodes is not None:  # sizes that it reads are sizes of its operands
                        self._size_nodes.add_input(node, node.meta["val"])
            result = function(*leaves)
            made = tree_leaves(result)
            if any(each is leaf for each in made for leaf in leaves if isinstance(leaf, _C.TensorBase)):
                raise Unsupported(
                    "torch._dynamo.export: a branch returns one of its operands as it is; clone() makes another"
                )
            graph.output(self.aside(self._argument, (tuple(made),), {}))
            lifted = []
            for given, _, node in self._inputs:
                if not isinstance(given, _open.SizeInput):
                    lifted.append((given, node))
                elif node.users:
                    raise Unsupported("torch._dynamo.export: a branch reads an open size; it can be an operand")
                else:
                    graph.erase_node(node)
            graph.inner_modules = self.modules
        finally:
            self.graph, self._inputs, self._nodes, self._promises, self._size_nodes = self._around.pop()
            self.modules = modules
        return graph, result, lifted

    def _node_of(self, tensor):
        is_own = isinstance(tensor, FakeTensor) and tensor.fake_mode is self.fakes
        if self._around and is_own and self._known_node(tensor) is None:  # it belongs to the graph around
            name = f"outer_{len(self._inputs)}"
            node = self._placeholder(name, name, self.likeness(tensor))
            self._inputs.append((tensor, None, node))
            self._nodes[id(tensor)] = (lambda: tensor, node)
        return super()._node_of(tensor)

    def attach(self, name, module):
        """A node that stands for a graph."""
        name = _GRAPHS[name]
        name = f"{name}_{sum(key.startswith(f'{name}_') for key in self.modules)}"
        self.modules[name] = module
        return self.graph.create_node("get_attr", name, (), {}, name)

    def record_call(self, target, args, out, name):
        self.count += 1
        self.aside(self._record_call, (target, args, out, name), {})

    def _record_call(self, target, args, out, name):
        args = tuple(self._truth(each) if isinstance(each, mica.SymBool) else each for each in args)
        node = self.graph.create_node("call_function", target, tuple(map(self._argument, args)), {}, name)
        self._named(out, node, {})

    def _truth(self, value):
        self._env()
        self._add_sizes(sorted(value.node._expr.free_symbols))
        return self._size_nodes.truth(value)

    # ---- the end

    def flush(self, reason, whole=True):
        if self.active and reason is not None:
            raise Unsupported(
                f"{reason}\n\nfrom user code:\n{_names.user_line()}\ntorch._dynamo.export makes one graph, without values"
            )

    def _argument(self, value):
        if isinstance(value, _OPEN):
            self._add_sizes(_open.OpenInputs.symbols(value))
            return self._size_nodes.argument(value)
        return value if isinstance(value, Node) else super()._argument(value)

    def end_with(self, result):
        """(the nodes that a graph returns, [(index into them, None) or (None, constant) for each leaf of the result],
        nesting)."""
        leaves, spec = tree_flatten(
            tree_map_only(OpenSize, tuple, result, is_leaf=lambda each: isinstance(each, OpenSize))
        )
        nodes, places = [], []
        self._restore_modes()
        for leaf in leaves:
            node = self._argument(leaf) if isinstance(leaf, (_C.TensorBase, *_OPEN)) else leaf
            if hasattr(node, "graph"):
                places.append((len(nodes), None))
                nodes.append(node)
            elif isinstance(node, _CONSTANTS):
                places.append((None, node))
            else:
                raise Unsupported(f"torch._dynamo.export: the function returns a {type(node).__name__}")
        return nodes, places, spec

    def inputs(self):
        """(a tensor or a size, its node). A size is asked of a tensor, which is an input too."""
        known = {
            symbol for given, _, node in self._inputs if isinstance(given, _C.TensorBase) for symbol in _symbols(node)
        }
        for given, _, node in list(self._inputs):
            if isinstance(given, _open.SizeInput) and known.isdisjoint(own := set(_symbols(node))):
                tensors = (tensor for tensor, name in self._names.given() if self._names.is_argument(name))
                tensor = next((t for t in tensors if own & set(_open.OpenInputs.symbols(self._fake(t)))), None)
                if tensor is not None:
                    known.update(_symbols(self._node_of(tensor)))
        return [(given, node) for given, _, node in self._inputs]

    def open_axes(self, tensor):
        """The dimensions of an argument whose sizes are open after all."""
        sizes = self._fake(tensor).__dict__.get("_sizes", ())
        replaced = self.fakes.shape_env.replace if sizes else None
        return {axis for axis, size in enumerate(sizes) if not isinstance(size, int) and not replaced(size).is_number}

    def fixed(self, tensor, axis, named):
        """Add a guard on a size whose value the operators of the graph rely on. It is an error if the size was declared
        open."""
        where, size = f"{self._names.of(tensor)}.size()[{axis}]", tensor.shape[axis]
        if any(each is tensor and at == axis for each, at, _ in named):
            raise ConstraintViolationError(f"Constraints violated ({where})! The graph needs it to be {size}")
        return f"Eq({where}, {size})"

    def guards(self):
        return [] if self.fakes.shape_env is None else [str(each.expr) for each in self.fakes.shape_env.guards]

    def check(self, named):
        """Raise if a size that was said to be open is not, or not in all of the range that was said."""
        self._open.check()
        env = self.fakes.shape_env
        self._check_equalities(named)
        for tensor, axis, label in named:
            size = self._fake(tensor).__dict__.get("_sizes", tensor.shape)[axis]
            where = f"{self._names.of(tensor)}.size()[{axis}]"
            if isinstance(size, int) or env.replace(size).is_number:
                raise ConstraintViolationError(
                    f"Constraints violated ({where})! The graph needs it to be {tensor.shape[axis]}"
                )
            if not size.is_symbol:
                continue
            ((name,),) = size.terms
            low, high = env._ranges[name]
            least, most = getattr(label, "min", None) or 0, getattr(label, "max", None)
            if low > max(least, 2) or (high is not None and (most is None or high < most)):
                raise ConstraintViolationError(
                    f"Constraints violated ({where})! The graph needs {low} <= size"
                    f"{'' if high is None else f' <= {high}'}, which is less than what {label!r} says"
                )

    def _check_equalities(self, named):
        """Raise if the graph needs two sizes to be equal that were declared open by different names, or one of them
        without a name."""
        labels = {}
        for tensor, axis, label in named:
            size = self._fake(tensor).__dict__.get("_sizes", tensor.shape)[axis]
            if not isinstance(size, int) and size.is_symbol:
                labels[next(iter(size.free_symbols))] = getattr(label, "__name__", label)
        for guard in self.fakes.shape_env.guards if labels else ():
            names = guard.expr.free_symbols
            is_said = labels.keys() & names and len({labels.get(name) for name in names}) > 1
            if is_said and getattr(guard.expr, "sign", "") == "==":
                raise ConstraintViolationError(
                    f"Constraints violated! The graph needs {guard.expr}, of sizes that were said to be apart"
                )


def _symbols(node):
    return _open.OpenInputs.symbols(node.meta["val"])


def _has_masks(func, args):
    """Whether a call is x[mask]."""
    places = args[1] if len(args) > 1 and _names.name_of(func) == "__getitem__" else ()
    places = places if isinstance(places, (list, tuple)) else (places,)
    return any(isinstance(each, _C.TensorBase) and each.dtype in (mica.bool, mica.uint8) for each in places)


def _copied(tensor):
    return tensor.detach().clone()
