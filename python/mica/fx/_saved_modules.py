"""Graph modules in files that torch wrote: attributes and the code of forward."""

import ast
import importlib
import sys

from mica.fx._symbolic_trace import Tracer
from mica.fx.graph_module import _OF_THE_GRAPH, GraphModule, _CodeOnlyModule, _forward_from_src


def _imported(import_block):
    """The names that lines of imports give; torch's modules are Mica's."""
    names = {}
    for line in ast.parse(import_block).body:
        if isinstance(line, ast.Import):
            for each in line.names:
                module = importlib.import_module(_ours(each.name))
                package = sys.modules[module.__name__.partition(".")[0]]
                names[each.asname or each.name.partition(".")[0]] = module if each.asname else package
        elif isinstance(line, ast.ImportFrom):
            module = importlib.import_module(_ours(line.module))
            names.update({each.asname or each.name: getattr(module, each.name) for each in line.names})
        else:
            exec(ast.unparse(line), names)
    return names


def _ours(name):
    return f"mica{name.removeprefix('torch')}" if name.partition(".")[0] == "torch" else name


def reduce_graph_module(body, import_block):
    """The graph module of a pickle of torch's, which has the code of forward: the code is traced.

    `body` are the module's attributes, `import_block` the lines that import what the code names.
    """

    class Leaves(Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    body = dict(body)
    forward = _forward_from_src(body.pop("_code"), _imported(import_block))
    holder = _CodeOnlyModule({key: value for key, value in body.items() if key not in _OF_THE_GRAPH})
    type(holder).forward = forward
    graph = Leaves().trace(holder)
    graph._tracer_cls = body.get("_tracer_cls")
    made = GraphModule(holder, graph, body.get("_graphmodule_cls_name", "GraphModule"))
    made.meta = body.get("meta", {})
    made.train(body.get("training", True))
    return made
