"""Functions whose graphs are to have no operators that change tensors (functionalized.py)."""

import functools
import sys

__all__ = ["into_functional_graph", "without_changes", "without_inner_changes"]


def into_functional_graph(func, remove="mutations"):
    """The function, whose graph has no operators that change tensors if it is called under make_fx. Unlike within
    functionalize, the function is not called by a transform."""

    @functools.wraps(func)
    def traced(*args, **kwargs):
        tracing = sys.modules.get("mica.fx.experimental.proxy_tensor")
        mode = None if tracing is None else tracing.get_proxy_mode()
        if mode is not None:
            mode.functional = remove
        return func(*args, **kwargs)

    return traced


def without_changes(module):
    """A module of aten's operators whose graph has no operators that change tensors."""
    from mica._functorch.functionalized import functionalized
    from mica.fx.graph_module import GraphModule

    without_inner_changes(module)
    output = module.graph.output_node()
    outputs = output.args[0]
    module.graph.erase_node(output)
    graph, outputs = functionalized(module.graph, outputs)
    graph.output(outputs)
    graph.eliminate_dead_code()
    return GraphModule(module, graph, type(module).__name__)


def without_inner_changes(module):
    """Let the graphs within a graph (of branches and loops) have no operators that change tensors."""
    for name in {node.target for node in module.graph.nodes if node.op == "get_attr"}:
        if hasattr(inner := getattr(module, name, None), "graph"):
            setattr(module, name, without_changes(inner))
