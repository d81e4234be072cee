"""Computes the parts of a graph that depend on its attributes alone once."""

from mica.fx._symbolic_trace import symbolic_trace
from mica.fx.graph import Graph
from mica.fx.graph_module import GraphModule
from mica.fx.node import map_arg
from mica.nn import Module, Parameter

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A graph whose constant part is computed at the first call: `const_subgraph_module` computes it."""

    def __init__(
        self, root, graph, const_subgraph=None, fx_const_folded_attrs_name=None, device_for_folded_attrs="cpu"
    ):
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs, self.has_folding_been_run = device_for_folded_attrs, False

    def __call__(self, *args, **kwargs):
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self):
        """Compute the constant part; done once."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None or self.has_folding_been_run:
            return
        self.has_folding_been_run = True
        values = self.const_subgraph_module()
        owner, several = self, isinstance(values, (tuple, list))
        if several:
            owner = getattr(self, self.fx_const_folded_attrs_name)
        for i, value in enumerate(values if several else (values,)):
            name = str(i) if several else self.fx_const_folded_attrs_name
            made = value if isinstance(value, Parameter) else _parameter(value)
            owner.register_parameter(name, made)


def _parameter(value):
    return Parameter(value.detach(), requires_grad=value.requires_grad and value.is_floating_point())


def get_unique_attr_name_in_module(mod_traced, name):
    """A name like this one that the module does not have."""
    name = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    if name[0].isdigit():
        name = f"_{name}"
    made, number = name, 0
    while hasattr(mod_traced, made):
        number += 1
        made = f"{name}_{number}"
    return made


def split_const_subgraphs(module, skip_folding_node_fn=None, device_for_folded_attrs="cpu"):
    """A module whose nodes that need no input are computed at the first call, once."""
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant, skipped = set(), skip_folding_node_fn or (lambda node: False)
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output") or skipped(node):
            continue
        if all(used in constant for used in node.all_input_nodes) and not _is_impure(node, traced):
            constant.add(node)
    folded = [node for node in traced.graph.nodes if node in constant and node.op != "get_attr"
              and any(user not in constant for user in node.users)]  # fmt: skip
    if not folded:
        return FoldedGraphModule(traced, traced.graph)
    name = get_unique_attr_name_in_module(traced, "_FX_CONST_FOLDED_ATTRS")
    root, inner, values = Module(), Graph(), {}
    for key, value in (
        *traced.named_parameters(recurse=False),
        *traced.named_buffers(recurse=False),
        *traced.named_children(),
    ):
        setattr(root, key, value)
    for node in traced.graph.nodes:
        if node in constant:
            values[node] = inner.node_copy(node, values.__getitem__)
    results = tuple(values[node] for node in folded)
    inner.output(results[0] if len(results) == 1 else results)
    if len(folded) == 1:
        setattr(root, name, Parameter(_placeholder(), requires_grad=False))
    else:
        holder = Module()
        for i in range(len(folded)):
            holder.register_parameter(str(i), Parameter(_placeholder(), requires_grad=False))
        setattr(root, name, holder)
    graph, env = Graph(), {}
    for node in traced.graph.nodes:
        if node in constant and node not in folded:
            if node.op == "get_attr" and any(user not in constant for user in node.users):
                env[node] = graph.node_copy(node)
            continue
        if node in folded:
            target = name if len(folded) == 1 else f"{name}.{folded.index(node)}"
            env[node] = graph.get_attr(target)
            env[node].meta = dict(node.meta)
        elif node.op == "output":
            graph.output(map_arg(node.args[0], env.__getitem__))
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    return FoldedGraphModule(root, graph, inner, name, device_for_folded_attrs)


def _is_impure(node, owner):
    """Whether a node draws or changes something, by itself or within the graph that it calls."""
    if node.is_impure():
        return True
    called = owner.get_submodule(node.target) if node.op == "call_module" else None
    return isinstance(called, GraphModule) and any(
        _is_impure(inner, called) for inner in called.graph.nodes if inner.op not in ("placeholder", "output")
    )


def _placeholder():
    from mica import empty

    return empty(0)
