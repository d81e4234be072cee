"""Exported programs in functional operators: composites are taken apart, and changes in place become results."""

import contextlib
import dataclasses

import mica
from mica import _C
from mica._functorch.functionalized import functionalized
from mica._higher_order_ops.operators import OPERATORS
from mica._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from mica._subclasses.open_sizes import number_of_truth
from mica.export._core import COMPOSITES, is_mark
from mica.export._nodes import placeholder
from mica.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from mica.fx.experimental._facts_of_data import symbols_of_data
from mica.fx.experimental._unseen_calls import UnseenCalls
from mica.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    disable_proxy_modes_tracing,
    track_tensor_tree,
)
from mica.fx.interpreter import Interpreter
from mica.fx.node import Node, map_arg
from mica.utils._python_dispatch import _disable_current_modes
from mica.utils._pytree import tree_map, tree_map_only

__all__ = ["decomposed"]

aten = mica.ops.aten
_NAMED = (TensorArgument, SymIntArgument, SymFloatArgument, SymBoolArgument)
_CHANGED = {
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
}


def _fake_mode(graph):
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor) and value.fake_mode.shape_env is not None:
            return value.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)


def decomposed(program, table):
    """(graph, signature, constants, graphs of branches, module calls) of a program without composites and changes in place."""
    mode = _fake_mode(program.graph)
    tracer = PythonKeyTracer()
    rules = {op: rule for op, rule in table.items() if not is_mark(rule)}
    proxies = ProxyTorchDispatchMode(tracer, "fake", rules, mode.shape_env)
    given = []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        made = placeholder(tracer.graph, node.name)
        value = node.meta.get("val")
        if isinstance(value, FakeTensor) and value.fake_mode is not mode:
            with _disable_current_modes():
                meta = _C.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            value = FakeTensor(mode, meta, value.fake_device)
        made.meta["val"] = value
        if isinstance(value, _C.TensorBase):
            track_tensor_tree(value, made, tracer=tracer)
        proxies.sizes.add_input(made, value)
        given.append(value)
    steps = _Steps(program.graph_module, proxies, table, _kept_names(program.module_call_graph))
    with mica.no_grad(), mode, proxies, UnseenCalls(proxies):
        result = steps.run(*given)
        outputs = tree_map(proxies.argument, [*result, *steps.kept.values()])
    graph, outputs = functionalized(tracer.graph, outputs)
    outputs, kept = outputs[: len(result)], dict(zip(steps.kept, outputs[len(result) :], strict=True))
    for old, new in zip(tracer.graph.find_nodes(op="placeholder"), graph.find_nodes(op="placeholder"), strict=True):
        new.name = new.target = old.name
    constants, modules = {}, {}
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        value = getattr(tracer.root, node.target)
        if isinstance(value, mica.nn.Module):
            modules[node.target] = value
            continue
        constants[node.target] = value
        if isinstance(constants[node.target], FakeTensor):
            users = ", ".join(sorted({user.name for user in node.users}))
            raise NotImplementedError(f"run_decompositions: Mica sees no operator that makes what {users} reads")
    _name_norms(graph)
    graph, changed = _changes(graph)
    _note_values(graph, mode)
    specs = {each.arg.name: each for each in program.graph_signature.input_specs}
    user = [
        OutputSpec(each.kind, type(each.arg)(out.name) if isinstance(each.arg, _NAMED) else each.arg, each.target)
        for each, out in zip(program.graph_signature.output_specs, outputs, strict=True)
    ]
    mutations = []
    for name, value in changed:
        spec = specs[name]
        is_input = spec.kind is InputKind.USER_INPUT
        if spec.kind not in _CHANGED:
            raise RuntimeError(
                f"Constant {spec.target} is mutated in the forward method. Pls register it as buffer: a constant has no place "
                "for its new value"
            )
        kind = _CHANGED[spec.kind]
        mutations.append(OutputSpec(kind, TensorArgument(value.name), name if is_input else spec.target))
    graph.output((*(value for _, value in changed), *outputs))
    lifted = _lift(graph, constants)
    _keep_custom(program.graph, graph)
    inputs = list(program.graph_signature.input_specs)
    first = next((i for i, each in enumerate(inputs) if each.kind is InputKind.USER_INPUT), len(inputs))
    inputs[first:first] = lifted
    graph.lint()
    names = {name: node.name for name, node in kept.items() if isinstance(node, Node) and node in graph.nodes}
    calls = [_renamed(entry, names) for entry in program.module_call_graph]
    return graph, ExportGraphSignature(inputs, [*mutations, *user]), constants, modules, calls


def _keep_custom(old, new):
    """Let placeholders and the output have what a program has noted on them (node.meta["custom"])."""
    noted = {node.name: node.meta["custom"] for node in old.nodes if "custom" in node.meta}
    for node in new.nodes:
        if node.op in ("placeholder", "output") and node.name in noted:
            node.meta.setdefault("custom", noted[node.name])


def _kept_names(entries):
    """The nodes that signatures of module calls name."""
    kept = [entry.signature for entry in entries if entry.signature is not None]
    return {each.name for signature in kept for each in (*signature.inputs, *signature.outputs) if each.name}


def _renamed(entry, names):
    """The call of a module, with what its arguments and results are called now."""
    if entry.signature is None:
        return entry

    def renamed(argument):
        return type(argument)(names[argument.name]) if argument.name in names else argument

    old = entry.signature
    made = dataclasses.replace(old, inputs=list(map(renamed, old.inputs)), outputs=list(map(renamed, old.outputs)))
    return dataclasses.replace(entry, signature=made)


# Operators whose parts are internal to the engine, so that no mode sees them: they are not decomposed.
_WHOLE = frozenset(
    ["gru", "lstm", "rnn_relu", "rnn_tanh", "l1_loss", "log_sigmoid", "max_pool1d", "pad", "rms_norm", "selu"]
)


def _is_whole(target):
    name = getattr(getattr(target, "overloadpacket", None), "__name__", "")
    return name in _WHOLE or name.startswith(("upsample_", "_upsample_"))


def _is_composite(target):
    """Whether an operator stays whole unless the table of decompositions has it."""
    packet = getattr(target, "overloadpacket", None)
    return getattr(target, "namespace", "") == "aten" and packet.__name__ in COMPOSITES


class _Steps(Interpreter):
    """Runs the calls of a graph, without those that only switch gradients. The nodes that a call becomes know the modules that
    the call belongs to."""

    def __init__(self, module, mode, table, kept_names=()):
        super().__init__(module)
        self._kept_names, self.kept = kept_names, {}  # what signatures of module calls name
        self._mode, self._made, self._seen, self._table = mode, mode.tracer.graph, set(), table

    def run_node(self, n):
        count, env = len(self._made.nodes), self._mode.shape_env
        if env is not None and n.op == "call_function":  # values that only data decide keep their names
            found = symbols_of_data(n.meta.get("val")) if env.has_data() else set()
            env.expected = sorted(found - self._seen, key=lambda name: (len(name), name))
            self._seen |= found
        try:
            result = super().run_node(n)
        finally:
            if env is not None:
                env.expected = []
        if n.name in self._kept_names:
            self.kept[n.name] = result
        new, nodes = len(self._made.nodes) - count, reversed(self._made.nodes)
        known = {key: n.meta[key] for key in ("nn_module_stack", "stack_trace", "custom") if key in n.meta}
        for _ in range(new if known else 0):
            next(nodes).meta.update(known)
        return result

    def call_function(self, target, args, kwargs):
        if target is _C._set_grad_enabled:
            return None
        if target is OPERATORS["wrap_with_set_grad_enabled"]:  # it records no gradients
            return _Steps(args[1], self._mode, self._table, self._kept_names).run(*args[2:])
        if target is not aten._assert_scalar.default and target not in OPERATORS.values():
            args, kwargs = tree_map_only(mica.SymBool, number_of_truth, (tuple(args), dict(kwargs)))
        rule = self._table.get(target)
        if rule is not None and not is_mark(rule):
            out = rule(*args, **kwargs)
            if out is not NotImplemented:
                return out
        if target is aten._assert_tensor_metadata.default:
            self._assert_metadata(*args, **kwargs)
            return None
        if not _is_whole(target) and (rule is not None or not _is_composite(target)):
            return super().call_function(target, args, kwargs)
        node_args, node_kwargs = self._mode.argument(tuple(args)), self._mode.argument(dict(kwargs))
        with disable_proxy_modes_tracing():
            out = target(*args, **kwargs)
        self._mode.record(target, node_args, node_kwargs, out)
        return out

    def _assert_metadata(self, a, size=None, stride=None, dtype=None, **named):
        args = self._mode.argument((a, size, stride, dtype))
        self._mode.record(aten._assert_tensor_metadata.default, args, named, None)


def _name_norms(graph):
    """Gives batch norms that leave their statistics alone the names that torch's core operators have for them."""
    for node in graph.nodes:
        if node.target is not aten.native_batch_norm.default:
            continue
        x, weight, bias, mean, var, training, momentum, eps = node.args
        if mean is None:
            node.target = aten._native_batch_norm_legit.no_stats
            node._rename("_native_batch_norm_legit")
            node.args = (x, weight, bias, training, momentum, eps)
        elif not training:
            node.target = aten._native_batch_norm_legit_no_training.default
            node._rename("_native_batch_norm_legit_no_training")
            node.args = (x, weight, bias, mean, var, momentum, eps)


def _changes(graph):
    """The graph without its last copy_ into inputs, and [(input's name, its new value)]."""
    found = []
    for node in list(graph.nodes):
        if node.target is aten.copy_.default and node.args[0].op == "placeholder" and not node.users:
            found.append((node.args[0].name, node.args[1]))
            graph.erase_node(node)
    return graph, found


def _note_values(graph, mode):
    """Let nodes that are there because changes became results know their values, which archives hold, as the others do."""
    for node in graph.nodes:
        known = all("val" in each.meta for each in node.all_input_nodes)
        if node.op != "call_function" or "val" in node.meta or not known:
            continue
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        # What fake tensors cannot compute stays unknown.
        with contextlib.suppress(NotImplementedError, RuntimeError), _disable_current_modes(), mode, mica.no_grad():
            node.meta["val"] = node.target(*args, **kwargs)


def _lift(graph, constants):
    """Constants as placeholders, before the program's inputs; their specs."""
    specs = []
    users = [node for node in graph.nodes if node.op == "get_attr" and node.target in constants]
    known = {}
    for node in users:
        if node.target not in known:
            first = next(iter(graph.nodes))
            with graph.inserting_before(first):
                known[node.target] = graph.create_node("placeholder", f"c{node.target}", (), {}, f"c{node.target}")
            known[node.target].meta = dict(node.meta)
        node.replace_all_uses_with(known[node.target])
        graph.erase_node(node)
    for target, node in known.items():
        specs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target))
    return specs


def placed(graph, signature):
    """Put the placeholders into the order of the signature."""
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    anchor = next((node for node in graph.nodes if node.op != "placeholder"), None)
    for spec in signature.input_specs:
        if spec.arg.name in nodes and anchor is not None:
            anchor.prepend(nodes[spec.arg.name])
