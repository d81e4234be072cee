"""torch._dynamo.export: a function as one graph of its own calls, with its parameters and buffers as attributes.

The function runs once, as a captured one does (capture.py), and nothing is computed: its arguments stay as they are. Sizes
are SymInts for it, so that a branch on one is a guard.
"""

import contextlib
import inspect
from typing import NamedTuple

import mica
from mica._dynamo import _capture_breaks as _breaks
from mica._dynamo import _capture_names as _names
from mica._dynamo import _open_inputs as _open
from mica._dynamo._whole_capture import Again, Owner, WholeCapture, current
from mica._dynamo.exc import Unsupported
from mica._subclasses.fake_tensor import FakeTensorMode
from mica._subclasses.open_sizes import NeedsStatic
from mica.export._state import kept_attributes
from mica.fx._pytree_codegen import _PyTreeCodeGen, _PyTreeInfo
from mica.fx.experimental import _facts_of_data
from mica.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.interpreter import Interpreter
from mica.utils._pytree import tree_flatten, tree_leaves, tree_map

__all__ = ["ExportResult", "current", "export_graph"]


class ExportResult(NamedTuple):
    """A graph, and the guards on the sizes of its inputs, as texts."""

    graph_module: GraphModule
    guards: list


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
    presets, owner = {}, _owner(function)
    while True:
        try:
            # What the function keeps in its module are fake tensors, which a second run must not find.
            with contextlib.nullcontext() if owner is None else kept_attributes(owner, warns=False):
                return _run_once(function, args, kwargs, dynamic, named, presets)
        except Again as again:
            presets = again.presets


def _owner(function):
    """The module that a function is, or whose method it is, or None."""
    owner = function if isinstance(function, mica.nn.Module) else getattr(function, "__self__", None)
    return owner if isinstance(owner, mica.nn.Module) else None


def _run_once(function, args, kwargs, dynamic, named, presets):
    capture = WholeCapture(Owner(function, dynamic), args, kwargs, presets)
    state = _State(function)
    _names.set_active(capture)
    try:
        with _breaks.functions_break(capture), capture:
            # Lists and dicts are copied, so that the function changes nobody else's.
            inner_args, inner_kwargs = tree_map(lambda leaf: leaf, (tuple(args), dict(kwargs)))
            result = function(*inner_args, **inner_kwargs)
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
        owner = _owner(function)
        modules = () if owner is None else owner.modules()
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
    from mica.export.dynamic_shapes import named_arguments, named_sizes

    inner = function.forward if isinstance(function, mica.nn.Module) else function
    values = named_arguments(inner, args, kwargs)
    leaves = tree_leaves(list(values.values()))
    found = named_sizes(shapes, values, inner).items()
    return [(leaves[i], axis, label) for (i, axis), label in found if axis is not None]


def _flat_module(function, capture, flat, outputs):
    """(a module that takes the tensors that the graph reads of the arguments, these tensors)."""
    graph, root, made, attributes = Graph(), mica.nn.Module(), {}, {}
    paths, given, sizes = _paths(function), [], []
    for name, each in capture.modules.items():
        root.add_module(name, each)
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
    owner = _owner(function)
    if owner is None:
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
        env.facts = _facts_of_data.among(presets)
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
        rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    except (TypeError, ValueError):
        names, rest = [], "args"
    names = names[: len(args)] + [f"{rest}_{i}" for i in range(len(args) - len(names))]
    return [*names, *kwargs]
