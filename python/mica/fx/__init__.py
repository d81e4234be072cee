"""Programs as graphs: traced by running them with proxies, changed node by node, and run again."""

from mica.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap  # noqa: F401
from mica.fx.graph import CodeGen, Graph  # noqa: F401
from mica.fx.graph_module import GraphModule
from mica.fx.interpreter import Interpreter, Transformer
from mica.fx.node import Node, has_side_effect, map_arg
from mica.fx.proxy import Proxy
from mica.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "has_side_effect", "map_arg",
    "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip


def __getattr__(name):
    import importlib

    if name in ("annotate", "experimental", "passes", "traceback"):
        return importlib.import_module(f"mica.fx.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
