"""torch._dynamo.export: a function as one graph of its own calls, with its parameters and buffers as attributes.

The function runs once, as a captured one does (capture.py), and nothing is computed: its arguments stay as they are. Sizes
are SymInts for it, so that a branch on one is a guard.
"""

import inspect
from typing import NamedTuple

import mica
from mica import _C
from mica._dynamo import _capture_names as _names
from mica._dynamo import _open_inputs as _open
from mica._dynamo.capture import Capture
from mica._dynamo.exc import Unsupported
from mica._subclasses.fake_tensor import FakeTensorMode
from mica._subclasses.open_sizes import NeedsStatic, OpenSize
from mica.fx._pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from mica.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.interpreter import Interpreter
from mica.utils._pytree import tree_flatten, tree_leaves, tree_map_only

__all__ = ["ExportResult", "export_graph"]

_CONSTANTS = (
    int, float, bool, str, bytes, complex, type(None), type(Ellipsis), range, mica.Size, mica.dtype, mica.device,
    mica.layout, mica.memory_format,
)  # fmt: skip


class ExportResult(NamedTuple):
    """A graph, and what it relies on of the sizes of its inputs, as texts."""

    graph_module: GraphModule
    guards: list


class _Owner:
    """What a capture asks of the function that it belongs to."""

    fullgraph, sizes_apart = True, True

    def __init__(self, function, dynamic):
        self.function, self.dynamic, self.seen = function, dynamic, {}


class WholeCapture(Capture):
    """A call that is recorded and not computed. What asks for a value is refused."""

    def __init__(self, owner, args, kwargs):
        super().__init__(owner, args, kwargs)
        self._open.shows_numbers = False
        self._note_modes()  # the graph runs in the modes of its caller

    def flush(self, reason, whole=True):
        if self.active and reason is not None:
            raise Unsupported(
                f"{reason}\n\nfrom user code:\n{_names.user_line()}\ntorch._dynamo.export makes one graph, without values"
            )

    def _argument(self, value):
        if isinstance(value, (mica.SymInt, mica.SymFloat)):
            self._add_sizes(_open.OpenInputs.symbols(value))
            return self._size_nodes.argument(value)
        return super()._argument(value)

    def end_with(self, result):
        """(nodes of what a graph is to return, [(index into them, None) or (None, constant) for each leaf], nesting)."""
        leaves, spec = tree_flatten(
            tree_map_only(OpenSize, tuple, result, is_leaf=lambda each: isinstance(each, OpenSize))
        )
        nodes, places = [], []
        self._restore_modes()
        for leaf in leaves:
            node = self._argument(leaf) if isinstance(leaf, (_C.TensorBase, mica.SymInt, mica.SymFloat)) else leaf
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
        """A guard on a size that the operators of the graph need to be what it is; an error if it was said to be open."""
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


def _symbols(node):
    return _open.OpenInputs.symbols(node.meta["val"])


def export_graph(
    function, args, kwargs, *, aten_graph, pre_dispatch, decomposition_table, dynamic, dynamic_shapes, same_signature
):
    """The graph of a function for these arguments: see torch._dynamo.export."""
    named = _named_sizes(function, args, kwargs, dynamic_shapes)
    before = [(tensor, tensor.__dict__.get("_dynamo_dynamic_indices")) for tensor, _, _ in named]
    for tensor, axis, _ in named:
        tensor._dynamo_dynamic_indices = {*tensor.__dict__.get("_dynamo_dynamic_indices", ()), axis}
    try:
        capture, (nodes, places, out_spec) = _run(function, args, kwargs, dynamic, named)
    finally:
        for tensor, indices in reversed(before):
            vars(tensor).pop("_dynamo_dynamic_indices", None)
            if indices is not None:
                tensor._dynamo_dynamic_indices = indices
    flat, in_spec = tree_flatten((args, kwargs))
    module, given = _flat_module(function, capture, flat, nodes)
    guards = capture.guards()
    if aten_graph:
        axes = [capture.open_axes(tensor) for tensor in given]
        module, fixed = _in_aten(module, given, axes, decomposition_table, pre_dispatch)
        guards += [capture.fixed(tensor, axis, named) for tensor, axis in fixed]
    if same_signature:
        module = _with_signature(module, function, args, kwargs, flat, given, places, in_spec, out_spec)
    return ExportResult(module, guards)


def _run(function, args, kwargs, dynamic, named):
    capture = WholeCapture(_Owner(function, dynamic), args, kwargs)
    state = _State(function)
    _names.set_active(capture)
    try:
        with _names.functions_break(capture), capture:
            result = function(*args, **kwargs)
        made = capture.end_with(result)
        capture.check(named)
        return capture, made
    finally:
        _names.set_active(None)
        capture.end()
        state.restore()


class _State:
    """The parameters and buffers of a module, which a run without values must not replace."""

    def __init__(self, function):
        owner = function if isinstance(function, mica.nn.Module) else getattr(function, "__self__", None)
        modules = owner.modules() if isinstance(owner, mica.nn.Module) else ()
        self._kept = [(held, dict(held)) for each in modules for held in (each._parameters, each._buffers)]

    def restore(self):
        replaced = None
        for held, before in self._kept:
            names = [name for name in {**before, **held} if held.get(name) is not before.get(name)]
            if names:
                replaced = names[0]
                held.clear()
                held.update(before)
        if replaced is not None:
            raise Unsupported(
                f"torch._dynamo.export: the function replaces {replaced!r} of a module; a graph can change it in place"
            )


def _named_sizes(function, args, kwargs, shapes):
    """[(tensor, axis, what was said of its size)]."""
    if shapes is None:
        return []
    from mica.export.dynamic_shapes import named_sizes

    inner = function.forward if isinstance(function, mica.nn.Module) else function
    parameters = list(inspect.signature(inner).parameters)
    values = {**dict(zip(parameters, args, strict=False)), **kwargs}
    leaves = [leaf for value in values.values() for leaf in tree_leaves(value)]
    return [(leaves[i], axis, label) for (i, axis), label in named_sizes(shapes, args, kwargs, parameters).items()]


def _flat_module(function, capture, flat, outputs):
    """(a module that takes the tensors that the graph reads of the arguments, these tensors)."""
    graph, root, made, attributes = Graph(), mica.nn.Module(), {}, {}
    paths, given, sizes = _paths(function), [], []
    for value, node in capture.inputs():
        if isinstance(value, _open.SizeInput):
            sizes.append(node)
        elif any(leaf is value for leaf in flat):
            given.append(value)
            made[node] = graph.node_copy(node)
        else:
            name = paths.get(id(value), node.target)
            if not isinstance(value, mica.nn.Parameter):
                root.register_buffer(name, value)
            else:
                root.register_parameter(name, value)
            attributes[node] = name
    for node in sizes:
        if node.users or node in outputs:
            made[node] = _size_node(graph, node, made)

    def value(node):
        if node not in made:
            made[node] = graph.create_node("get_attr", attributes[node], (), {}, attributes[node].lower())
            made[node].meta = dict(node.meta)
        return made[node]

    for node in capture.graph.nodes:
        if node.op != "placeholder":
            made[node] = graph.node_copy(node, value)
    graph.output(tuple(map(value, outputs)))
    return GraphModule(root, graph), given


def _size_node(graph, node, made):
    """A size as one that is asked of an input."""
    (symbol,) = _open.OpenInputs.symbols(node.meta["val"])
    for old, new in made.items():
        for axis, size in enumerate(getattr(old.meta["val"], "__dict__", {}).get("_sizes", ())):
            if not isinstance(size, int) and size.is_symbol and symbol in size.free_symbols:
                found = graph.create_node("call_function", mica.ops.aten.sym_size.int, (new, axis), {}, "sym_size_int")
                found.meta = dict(node.meta)
                return found
    raise Unsupported(f"torch._dynamo.export: no input has the size {symbol} as it is")


def _paths(function):
    """Names of attributes by the ids of a module's parameters and buffers."""
    owner = function if isinstance(function, mica.nn.Module) else getattr(function, "__self__", None)
    if not isinstance(owner, mica.nn.Module):
        return {}
    every = [*owner.named_parameters(), *owner.named_buffers()]
    return {id(value): f"L__self___{path.replace('.', '_')}" for path, value in every}


def _in_aten(module, given, axes, table, pre_dispatch):
    """(the graph in aten's operators, made without values; [(tensor, axis)] of sizes along `axes` that are fixed in it)."""
    from mica.fx.experimental.proxy_tensor import make_fx

    interpreter, presets = Interpreter(module), {}
    trace = make_fx(lambda *tensors: interpreter.run(*tensors), table, pre_dispatch=pre_dispatch)
    while True:
        env = ShapeEnv()
        env.presets, env.avoid = presets, {size for value in module.state_dict().values() for size in value.shape}
        fakes = FakeTensorMode(allow_non_fake_inputs=True, shape_env=env, static_shapes=True)
        inputs = [_opened(fakes, *each) for each in zip(given, axes, strict=True)]
        try:
            with fakes:
                made = trace(*inputs)
            sizes = [fake.__dict__.get("_sizes", tensor.shape) for fake, tensor in zip(inputs, given, strict=True)]
            fixed = [
                (tensor, axis)
                for tensor, known, opened in zip(given, sizes, axes, strict=True)
                for axis in sorted(opened)
                if isinstance(known[axis], int) or env.replace(known[axis]).is_number
            ]
            return made, fixed
        except Exception as error:
            need = error.__cause__
            if not isinstance(need, NeedsStatic) or need.presets.items() <= presets.items():
                raise
            presets |= need.presets


def _opened(fakes, tensor, axes):
    if not axes:
        return fakes.from_tensor(tensor, static_shapes=True)
    kinds = [DimDynamic.DUCK if axis in axes else DimDynamic.STATIC for axis in range(tensor.dim())]
    context = StatelessSymbolicContext(dynamic_sizes=kinds)
    return fakes.from_tensor(tensor, static_shapes=False, symbolic_context=context)


def _with_signature(module, function, args, kwargs, flat, given, places, in_spec, out_spec):
    """The module with the function's own arguments and results."""
    graph, made = Graph(), {}
    olds = [node for node in module.graph.nodes if node.op == "placeholder"]
    for i, leaf in enumerate(flat):
        old = next((old for old, tensor in zip(olds, given, strict=True) if tensor is leaf and old not in made), None)
        new = graph.create_node("placeholder", f"arg{i}", (), {}, f"arg{i}" if old is None else old.name)
        new.meta = {"val": leaf} if old is None else dict(old.meta)
        if old is not None:
            made[old] = new
    results = graph.graph_copy(module.graph, made)
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    graph.output([constant if i is None else results[i] for i, constant in places])
    names = _parameter_names(function, args, kwargs)
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, in_spec, out_spec)))
    return GraphModule(module, graph)


def _parameter_names(function, args, kwargs):
    """Names of the arguments that were given, as the function has them."""
    inner = function.forward if isinstance(function, mica.nn.Module) else function
    try:
        parameters = inspect.signature(inner).parameters.values()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    names = names[: len(args)] + [f"args_{i}" for i in range(len(names), len(args))]
    return [*names, *kwargs]
