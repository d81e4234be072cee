"""Pictures of graphs in the language of Graphviz, made with the package pydot."""

import hashlib
import re

import mica
from mica.fx.graph_module import GraphModule
from mica.fx.node import Node, qualified_name
from mica.fx.operator_schemas import normalize_function

__all__ = ["FxGraphDrawer"]

_COLORS = {
    "placeholder": '"AliceBlue"',
    "call_module": "LemonChiffon1",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
}
# Calls of one function have one of these colors.
_COLORS_OF_CALLS = [
    f"{name}{number}"
    for name in ("Khaki", "LavenderBlush", "MistyRose", "PeachPuff", "Wheat", "Bisque")
    for number in (1, 2)
]


def _style(color):
    return {"shape": "record", "fillcolor": color, "style": '"filled,rounded"', "fontcolor": "#000000"}


def _color(name):
    return _COLORS_OF_CALLS[hashlib.sha256(name.encode()).digest()[0] % len(_COLORS_OF_CALLS)]


def _escaped(text):
    """A text without what has a meaning in labels."""
    return text.replace("{", r"\{").replace("}", r"\}").replace("<", r"\<").replace(">", r"\>")


def _several(name, brackets, items):
    """Arguments as text: one beside the name, more on lines of their own."""
    opening, closing = brackets
    if len(items) == 1:
        return f"|{name}={opening}{items[0]},{closing}"
    lines = ",\\n".join(items)
    return f"|{name}={opening}\\l{lines},\\n{closing}\\l"


def _place(stack_trace):
    """The last line of a stack trace: the file and the source."""
    found = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', stack_trace)
    return f"{found[-1][0].rpartition('/')[2]}:{found[-1][1]} {found[-1][2]}" if found else ""


class FxGraphDrawer:
    """Draws a graph module: `FxGraphDrawer(module, "name").get_dot_graph().write_svg("file.svg")`.

    Each node is a box with what it calls and, after `ShapeProp`, what its tensor is like; graph modules within the
    module are graphs of their own. The package pydot is needed, and Graphviz to write pictures.

    Args:
        ignore_getattr: leave out the nodes of attributes.
        ignore_parameters_and_buffers: leave out the parameters of layers.
        skip_node_names_in_args: leave out of a label which nodes a call reads; edges show them.
        parse_stack_trace: write the line of the program that a node comes from.
        dot_graph_shape: the shape of the nodes.
        normalize_args: write arguments by their names.
    """

    def __init__(self, graph_module, name, ignore_getattr=False, ignore_parameters_and_buffers=False,
                 skip_node_names_in_args=True, parse_stack_trace=False, dot_graph_shape=None,
                 normalize_args=False):  # fmt: skip
        try:
            import pydot
        except ImportError as error:
            raise RuntimeError(
                "FXGraphDrawer requires the pydot package to be installed. Please install pydot through your favorite "
                "Python package manager."
            ) from error
        self._pydot, self._name = pydot, name
        self.dot_graph_shape = dot_graph_shape or "record"
        self.normalize_args = normalize_args
        self._ignores_attributes, self._ignores_parameters = ignore_getattr, ignore_parameters_and_buffers
        self._skips_names, self._shows_places = skip_node_names_in_args, parse_stack_trace
        self._dot_graphs = {}
        self._draw(graph_module, name)

    def get_dot_graph(self, submod_name=None):
        """The picture of the module, or of a graph module within it by its name: a `pydot.Dot`."""
        return self.get_main_dot_graph() if submod_name is None else self.get_submod_dot_graph(submod_name)

    def get_main_dot_graph(self):
        """The picture of the module."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name):
        """The picture of a graph module within the module."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self):
        """All pictures by their names."""
        return self._dot_graphs

    def _draw(self, module, name):
        dot = self._dot_graphs[name] = self._pydot.Dot(name, rankdir="TB")
        shown = [node for node in module.graph.nodes if not (self._ignores_attributes and node.op == "get_attr")]
        for node in shown:
            style = self._style_of(node)
            dot.add_node(self._pydot.Node(node.name, label=self._label(module, node), **style))
            if node.op == "call_module":
                self._draw_module(dot, name, node, module.get_submodule(node.target))
        for node in shown:
            for user in node.users:
                dot.add_edge(self._pydot.Edge(node.name, user.name))

    def _draw_module(self, dot, name, node, called):
        if isinstance(called, GraphModule):
            self._draw(called, f"{name}_{node.name}")
            return
        if self._ignores_parameters:
            return
        kinds = (("parameter", called.named_parameters()), ("buffer", called.named_buffers()))
        for kind, found in kinds:
            for each, value in found:
                title = f"{node.target}.{each}"
                label = f"{{{title}|op_code=get_{kind}{value.dtype}{list(value.shape)}\\n}}"
                dot.add_node(
                    self._pydot.Node(title, label=label, **_style("Salmon" if kind == "parameter" else "Salmon2"))
                )
                dot.add_edge(self._pydot.Edge(title, node.name))

    def _style_of(self, node):
        color = _COLORS.get(node.op) or _color(self._name_of_target(node))
        return {**_style(color), "shape": self.dot_graph_shape}

    def _name_of_target(self, node):
        if isinstance(node.target, str):
            return node.target
        named = getattr(node.target, "__module__", None) == "_operator"
        return f"_operator.{node.target.__name__}" if named else qualified_name(node.target)

    def _label(self, module, node):
        label = f"{{name=%{node.name}|op_code={node.op}\n"
        if node.op == "call_module":
            called = module.get_submodule(node.target)
            options = [f"{each}: {getattr(called, each)}" for each in getattr(called, "__constants__", ())]
            label += f"\\n{mica.typename(called)}\\n|" + "\\n".join(options) + "\\n}"
            return label
        label += f"|target={self._name_of_target(node)}\\n" + self._arguments(node) + f"|num_users={len(node.users)}\\n"
        described = node.meta.get("tensor_meta")
        each = [described] if hasattr(described, "dtype") else described if isinstance(described, (list, tuple)) else []
        label += "".join(self._description(one) for one in each if hasattr(one, "dtype"))
        if self._shows_places and node.meta.get("stack_trace"):
            label += f"|file={_escaped(_place(node.meta['stack_trace']))}\\n"
        return label + "}"

    def _arguments(self, node):
        args, kwargs = node.args, node.kwargs
        if self.normalize_args and node.op == "call_function":
            args, kwargs = normalize_function(node.target, args, kwargs, (), {}, True) or (args, kwargs)
        if self._skips_names:
            args = [each for each in args if not isinstance(each, Node) and not self._has_nodes(each)]
            kwargs = {name: each for name, each in kwargs.items() if not isinstance(each, Node)}
        text = _several("args", "()", [self._argument(each) for each in args]) if args else ""
        if kwargs:
            items = [f"{name}: {self._argument(each)}" for name, each in kwargs.items()]
            text += _several("kwargs", (r"\{", r"\}"), items)
        return text

    def _has_nodes(self, value):
        return isinstance(value, (list, tuple, dict)) and "%" in repr(mica.fx.node.map_arg(value, lambda n: f"%{n}"))

    def _argument(self, value):
        return _escaped(f"%{value}" if isinstance(value, Node) else str(self._with_signs(value)))

    def _with_signs(self, value):
        """A nest in which nodes are written with a sign before their names."""

        class Sign:
            def __init__(self, node):
                self.node = node

            def __repr__(self):
                return f"%{self.node}"

        return mica.fx.node.map_arg(value, Sign) if isinstance(value, (list, tuple, dict)) else value

    def _description(self, tensor):
        """What a tensor is like."""
        fields = {
            "dtype": tensor.dtype, "shape": tuple(tensor.shape), "requires_grad": tensor.requires_grad,
            "stride": tuple(tensor.stride),
        }  # fmt: skip
        return "".join(f"|{name}={value}\\n" for name, value in fields.items())
