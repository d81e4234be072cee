"""Passes, which change graphs."""

from mica.fx.passes import shape_prop

__all__ = ["shape_prop"]

_OTHERS = (
    "annotate_getitem_nodes", "dialect", "fake_tensor_prop", "graph_drawer", "graph_manipulation", "infra",
    "operator_support", "param_fetch", "pass_manager", "split_module", "split_utils", "splitter_base", "tools_common",
    "utils",
)  # fmt: skip


def __getattr__(name):
    if name in _OTHERS:
        import importlib

        return importlib.import_module(f"mica.fx.passes.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
