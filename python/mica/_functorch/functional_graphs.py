"""Functions whose graphs are to have no operators that change tensors (functionalized.py)."""

import functools
import sys

__all__ = ["into_functional_graph"]


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
