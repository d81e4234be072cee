"""Parts of a program without gradients, or with them within such a part: each is a graph of its own, as in torch."""

import operator

import mica
from mica import _C
from mica._higher_order_ops.operators import OPERATORS
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.node import map_arg

__all__ = ["inline_regions", "wrap_regions"]

_WRAP = OPERATORS["wrap_with_set_grad_enabled"]


def wrap_regions(graph, modules):
    """Nodes between switches of the gradient mode become a call of `wrap_with_set_grad_enabled` on a graph in `modules`.

    What has the mode of the whole program stays where it is. Results keep their names.
    """
    enabled, region, number = mica.is_grad_enabled(), [], 0
    is_on = enabled
    for node in list(graph.nodes):
        is_switch = node.target is _C._set_grad_enabled
        if (is_switch or node.op == "output") and region:
            _wrap(graph, modules, region, is_on, f"submod_{number}")
            region = []
        if is_switch:
            number, is_on = number + 1, node.args[0]
            graph.erase_node(node)
        elif is_on != enabled and node.op not in ("placeholder", "output"):
            region.append(node)


def _wrap(graph, modules, region, is_on, name):
    inside, known, root, made = set(region), {}, mica.nn.Module(), Graph()
    given = list(dict.fromkeys(each for node in region for each in node.all_input_nodes if each not in inside))
    for node in given:
        known[node] = made.placeholder(node.name)
        known[node].meta = dict(node.meta)
    for node in region:
        known[node] = made.node_copy(node, known.__getitem__)
        if node.op == "get_attr":
            root.add_module(node.target, modules.pop(node.target))
    results = [node for node in region if any(user not in inside for user in node.users)]
    made.output(tuple(known[node] for node in results))
    modules[name] = GraphModule(root, made)
    shared = _shared([node.meta.get("nn_module_stack", {}) for node in region])
    with graph.inserting_before(region[0]):
        part = graph.create_node("get_attr", name, (), {}, name)
        call = graph.create_node("call_function", _WRAP, (is_on, part, *given), {}, _WRAP.name())
        part.meta = {"nn_module_stack": shared}
        call.meta = {"nn_module_stack": shared, "val": tuple(node.meta.get("val") for node in results)}
        if region[0].stack_trace:
            call.meta["stack_trace"] = region[0].stack_trace
        items = [graph.create_node("call_function", operator.getitem, (call, i), {}) for i in range(len(results))]
    for node, item in zip(results, items, strict=True):
        node.replace_all_uses_with(item)
        item.meta = {**node.meta, "nn_module_stack": shared}
    names = [node.name for node in results]
    for node in reversed(region):
        graph.erase_node(node)
    for name, item in zip(names, items, strict=True):
        item.name = name
        graph._graph_namespace._rename_object(item, name)


def _shared(stacks):
    """What all stacks of modules begin with."""
    first, *others = stacks
    shared = {}
    for key, value in first.items():
        if any(list(each)[: len(shared) + 1] != [*shared, key] for each in others):
            break
        shared[key] = value
    return shared


def inline_regions(module):
    """Put the calls of such graphs back where they are called, between switches of the mode. The module's graph changes."""
    graph = module.graph
    for call in [node for node in graph.nodes if node.target is _WRAP]:
        is_on, part, *given = call.args
        inner, known = getattr(module, part.target), {}
        with graph.inserting_before(call):
            graph.create_node("call_function", _C._set_grad_enabled, (is_on,), {}, "_set_grad_enabled")
            placeholders = iter(given)
            for node in inner.graph.nodes:
                if node.op == "placeholder":
                    known[node] = next(placeholders)
                elif node.op == "output":
                    results = map_arg(node.args[0], known.__getitem__)
                else:
                    known[node] = graph.node_copy(node, known.__getitem__)
                    if node.op == "get_attr":
                        is_taken = hasattr(module, node.target)
                        known[node].target = f"{part.target}_{node.target}" if is_taken else node.target
                        module.add_module(known[node].target, getattr(inner, node.target))
            graph.create_node("call_function", _C._set_grad_enabled, (not is_on,), {}, "_set_grad_enabled")
        for item in list(call.users):
            item.replace_all_uses_with(results[item.args[1]])
            graph.erase_node(item)
        graph.erase_node(call)
        graph.erase_node(part)
