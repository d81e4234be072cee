"""Putting observers into a graph."""

from mica import nn
from mica.ao.nn import qat
from mica.ao.nn.intrinsic import qat as nniqat
from mica.ao.quantization.fx.fuse import _follower, _is_relu
from mica.ao.quantization.fx.operations import (
    ADD,
    CAT,
    DYNAMIC,
    LAYER,
    MUL,
    OWN_SCALE,
    SAME_SCALE,
    kind_of,
    module_kind,
    node_kinds,
)
from mica.ao.quantization.qconfig_mapping import is_dynamic
from mica.ao.quantization.quant_type import quant_type_of
from mica.ao.quantization.quantize import trained_form
from mica.fx import Node

__all__ = ["Plan", "prepare"]


class Plan:
    """What convert needs to know about a prepared graph. Nodes are known by their names, so that the plan can be copied."""

    def __init__(self):
        self.static = {}  # node -> (kind, qconfig)
        self.dynamic = {}  # node of a layer -> qconfig
        self.joined = set()  # relus that become part of the sum or product before them
        self.observers = {}  # node of an observer -> the attribute that holds it
        self.inputs, self.outputs = (), ()  # which inputs and outputs of the model are quantized


def _tensors(node, kind, all_inputs=False):
    """The arguments that are quantized: nodes, in a list for cat. `all_inputs` is for operations that Mica has no word for."""
    if all_inputs:
        return [each for each in node.all_input_nodes if each.target not in _NO_TENSORS]
    if kind == CAT:
        given = node.args[0] if node.args else node.kwargs["tensors"]
        return [each for each in given if isinstance(each, Node)]
    first = list(node.args[:2]) if kind not in ("layer", SAME_SCALE, OWN_SCALE) else list(node.args[:1])
    if not first and node.kwargs:
        first = [node.kwargs.get("input", node.kwargs.get("self"))]
    return [each for each in first if isinstance(each, Node)]


_NO_TENSORS = {"size", "dim", "shape", "numel", getattr, len}


class _Observers:
    """The observers of a graph: at most one behind each node."""

    def __init__(self, model, plan):
        self.model, self.plan = model, plan
        self.behind = {}  # node -> its observer's node

    def _add(self, node, module):
        number = len(self.plan.observers)
        name = f"activation_post_process_{number}"
        setattr(self.model, name, module)
        with self.model.graph.inserting_after(node):
            observer = self.model.graph.call_module(name, (node,))
        self.behind[node] = observer
        self.plan.observers[observer.name] = name
        return observer

    def put(self, node, make, for_all):
        """The observer behind a node; a new one is put before all uses of the node, or before none yet."""
        if node.name in self.plan.observers:
            return node
        if node in self.behind:
            return self.behind[node]
        observer = self._add(node, make())
        if for_all:
            node.replace_all_uses_with(observer, delete_user_cb=lambda user: user is not observer)
        return observer

    def module(self, observer):
        return getattr(self.model, self.plan.observers[observer.name])

    def share(self, observer, module):
        setattr(self.model, self.plan.observers[observer.name], module)


def _trained(model, name, qconfig):
    """Give a layer, or the layer within a joined module, the rounding of its weight."""
    module = model.get_submodule(name)
    joined = nniqat.TRAINED.get(type(module))
    if joined is not None:
        model.set_submodule(name, trained_form(module, qconfig, joined))
        return
    for part in (module, *module.children()):
        made = (
            getattr(qat, type(part).__name__, None)
            if type(part) in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
            else None
        )
        if made is not None:
            part.qconfig, part.weight_fake_quant = qconfig, qconfig.weight()
            part.__class__ = made


def _trained_by(model, name, qconfig, entry):
    """Replace a layer by its trained form, of the class that a backend's configuration names."""
    if entry is None or (entry.qat_module is not None and entry.qat_module.__module__.startswith("mica.ao.")):
        _trained(model, name, qconfig)
    elif entry.qat_module is not None:
        module = model.get_submodule(name)
        module.qconfig = qconfig
        model.set_submodule(name, entry.qat_module.from_float(module))


def _qconfigs(model, mapping):
    """node -> its qconfig."""
    modules, found, counts = dict(model.named_modules()), {}, {}
    for node in model.graph.nodes:
        if node.op not in ("call_module", "call_function", "call_method"):
            continue
        kinds = node_kinds(node, modules)
        name = node.target if node.op == "call_module" else ""
        scope = name.rpartition(".")[0]
        order = {kind: counts.get((scope, kind), 0) for kind in kinds}
        for kind in kinds:
            counts[scope, kind] = order[kind] + 1
        found[node] = mapping._find(name, kinds, (scope, order))
    return found


def _observed(model, node, qconfig, mappings):
    """Put the observed form of the program's own module in its place; False where the program names none."""
    if qconfig is None or node.op != "call_module" or not mappings:
        return False
    module = model.get_submodule(node.target)
    made = mappings.get(quant_type_of(qconfig), {}).get(type(module))
    if made is None:
        return False
    module.qconfig = qconfig
    model.set_submodule(node.target, made.from_float(module))
    return True


def prepare(model, mapping, is_qat, config, rules=None):
    """Put observers behind the inputs and outputs of what is to be quantized, in a GraphModule that was joined.

    The rules of a backend, if there are some, say what can be quantized, with which dtypes, and what has a scale of its own.
    """
    plan = Plan()
    plan.inputs, plan.outputs = tuple(config.input_quantized_indexes), tuple(config.output_quantized_indexes)
    modules, qconfigs = dict(model.named_modules()), _qconfigs(model, mapping)
    observers = _Observers(model, plan)
    placeholders = [node for node in model.graph.nodes if node.op == "placeholder"]
    come_quantized = {placeholders[i] for i in plan.inputs}
    for node in list(model.graph.nodes):
        qconfig, kind = qconfigs.get(node), kind_of(node, modules)
        is_own = _observed(model, node, qconfig, config.float_to_observed_mapping)
        kind = LAYER if is_own else kind
        is_layer = is_own or (node.op == "call_module" and module_kind(modules[node.target]) in DYNAMIC)
        entry = None
        if rules is not None and not is_own and qconfig is not None and node.name not in plan.joined:
            entry = rules.entry(node, modules)
            if entry is None or not rules.allows(entry, qconfig):
                continue
            is_unknown, kind = kind is None, rules.kind(node, modules, entry)
        if qconfig is None or (kind is None and not is_layer) or node.name in plan.joined:
            continue
        if is_dynamic(qconfig):
            if is_layer:
                plan.dynamic[node.name] = qconfig
            continue
        if kind is None:
            continue
        is_unknown = entry is not None and is_unknown
        inputs = _tensors(node, kind, is_unknown)
        if not inputs:
            continue
        if is_qat and node.op == "call_module" and not is_own:
            _trained_by(model, node.target, qconfig, entry)
        plan.static[node.name] = (kind, qconfig)
        seen = []
        for each in inputs:
            if each in come_quantized:
                continue
            by_qconfig = kind != OWN_SCALE or is_unknown
            observer = observers.put(each, qconfig.activation if by_qconfig else _plain(mapping, qconfig), False)
            node.replace_input_with(each, observer)
            seen.append(observer)
        relu = _follower(node) if kind in (ADD, MUL) and len(inputs) == 2 else None
        if relu is not None and _is_relu(relu, modules) and (entry is None or _joins(rules, node, relu, modules)):
            plan.joined.add(relu.name)
            observers.put(relu, qconfig.activation, True)
            continue
        made = observers.put(node, qconfig.activation, True)
        shares = kind in (SAME_SCALE, CAT) if entry is None else rules.shares(entry, kind, len(inputs))
        if shares and seen:
            for observer in (*(seen[1:] if kind == CAT else ()), made):
                observers.share(observer, observers.module(seen[0]))
    model.recompile()
    model._quantization_plan = plan
    return model


def _joins(rules, node, relu, modules):
    return rules.joins(node.target, type(modules[relu.target]) if relu.op == "call_module" else relu.target)


def _plain(mapping, qconfig):
    """The observer of the input of an operation whose output's range is known: that of the model."""
    return (mapping.global_qconfig or qconfig).activation
