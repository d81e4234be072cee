"""Checkpoints within a function whose operators are being recorded (make_fx)."""

import sys

from mica.utils._drawing import DRAWING_OPERATORS

__all__ = ["draws", "traced_graph"]


def traced_graph():
    """The graph that operators are recorded in at the moment, or None."""
    tracing = sys.modules.get("mica.fx.experimental.proxy_tensor")
    mode = None if tracing is None else tracing.get_proxy_mode()
    return mode.tracer.graph if mode is not None and mode.enable_tracing else None


def draws(graph, first):
    """Whether a graph draws random numbers from its node of this number on."""
    return any(_draws(node) for node in list(graph.nodes)[first:])


def _draws(node):
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    names = [argument.name for argument in schema.arguments]
    place = names.index("dropout_p") if "dropout_p" in names else len(names)
    if place < len(node.args) or "dropout_p" in node.kwargs:
        return node.kwargs.get("dropout_p", node.args[place] if place < len(node.args) else 0.0) != 0.0
    return schema.name.removeprefix("aten::").removesuffix("_") in DRAWING_OPERATORS
