"""What a program says of its functions and tensors to a compiler: where graphs end, which functions they hold, which sizes
they leave open."""

import contextlib
import functools
import sys
from dataclasses import dataclass

from mica import _C
from mica._dynamo.leaf_functions import leaf_function  # noqa: F401
from mica.compiler import _running, allow_in_graph, disable, set_stance, substitute_in_graph  # noqa: F401

# ---- where graphs end, and what they hold


def graph_break(msg=""):
    """Run the calls that were put off, where torch would end its graph. Within functions of allow_in_graph nothing ends."""
    if _running.is_opaque():
        return
    capture = sys.modules.get("mica._dynamo.capture")
    if capture is not None and (now := capture.active()) is not None:
        now.flush(f"Call to `torch._dynamo.graph_break()`{': ' + msg if msg else ''}")
    _C._flush_recording()


def step_unsupported(msg=""):
    """The same as graph_break. What comes after it is compiled, too."""
    graph_break(msg)


class error_on_graph_break(contextlib.ContextDecorator):
    """Say whether a break of a captured graph is an error, in a with block or in the functions that this decorates.

    With fullgraph=True breaks are errors anyway.
    """

    def __init__(self, error_on_graph_break):
        if not isinstance(error_on_graph_break, bool):
            raise TypeError(f"error_on_graph_break takes a bool, not {type(error_on_graph_break).__name__}")
        self._wanted, self._before = error_on_graph_break, []

    def __enter__(self):
        from mica._dynamo._capture_names import let_breaks_be_errors

        self._before.append(let_breaks_be_errors(self._wanted))

    def __exit__(self, *exception):
        from mica._dynamo._capture_names import let_breaks_be_errors

        let_breaks_be_errors(self._before.pop())


_BreaksAreErrors = error_on_graph_break


def _same(function=None, *args, **kwargs):
    return function if callable(function) else lambda fn: fn


def disable_nested_graph_breaks(fn=None):
    """The function itself: a break within a function that is called ends no graph of its caller's here."""
    return _same(fn)


def patch_dynamo_config(arg1=None, arg2=None, **kwargs):
    """Have other settings of torch._dynamo.config in a with block or a decorated function."""
    from mica._dynamo import config

    return config.patch(arg1, arg2, **kwargs)


def is_dynamo_disable_recursive(method):
    """Whether torch.compiler.disable was told to include the functions that this one calls; None for a function that was
    not disabled."""
    return getattr(method, "_torchdynamo_disable_recursive", None)


forbid_in_graph = run = skip_frame = dont_skip_tracing = _same


def nonstrict_trace(traceable_fn):
    """A function that calls this one, which torch has as one call of a graph: breaks within it are no error."""
    if not callable(traceable_fn):
        raise AssertionError("nonstrict_trace expects a callable")

    @functools.wraps(traceable_fn)
    def traced(*args, **kwargs):
        return traceable_fn(*args, **kwargs)

    _running.mark_opaque(traced)
    return traced


def disallow_in_graph(fn):
    """Keep a function of torch's out of graphs: a graph ends before it. Or take back what allow_in_graph has said of one."""
    from mica._dynamo import _capture_names

    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(each) for each in fn]
    if not callable(fn):
        raise AssertionError("disallow_in_graph expects a callable")
    if _running.unmark_opaque(fn):
        return fn
    if not _capture_names.is_of_torch(fn):
        raise RuntimeError(
            "disallow_in_graph is expected to be used on an already allowed callable (like torch.* ops). "
            "Use disallow_in_graph(fn) for functions of torch, and torch.compiler.disable(fn) for others"
        )
    _capture_names.disallowed.add(fn)
    return fn


# ---- sizes


def mark_dynamic(t, index, *, hint_override=None, min=None, max=None, specialize_on=None):
    """Mark one or several sizes of a tensor, so that graphs leave them open."""
    for axis in _marked(t, index, "_dynamo_dynamic_indices"):
        vars(t).setdefault("_dynamo_dynamic_range", {})[axis] = (min, max)


def maybe_mark_dynamic(t, index):
    """Mark one or several sizes of a tensor, so that graphs may leave them open. Where the code needs a number, it gets one."""
    _marked(t, index, "_dynamo_weak_dynamic_indices")


def mark_unbacked(t, index, *, hint_override=None, strict=False, specialize_on=None, shape_id=None):
    """Mark sizes as maybe_mark_dynamic does. A branch on such a size goes the way that it goes in this call."""
    _marked(t, index, "_dynamo_weak_dynamic_indices")
    _marked(t, index, "_dynamo_unbacked_indices")


def mark_static(t, index=None):
    """Mark one, several or all sizes of a tensor, so that they are numbers in graphs.

    A class of modules is returned as it is: numbers that its objects have are numbers in graphs anyway.
    """
    if isinstance(t, _C.TensorBase):
        _marked(t, range(t.dim()) if index is None else index, "_dynamo_static_indices")
        return None
    from mica.nn import Module

    if not (isinstance(t, type) and issubclass(t, Module)):
        raise TypeError(f"mark_static expects a tensor/nn.Module class but received {type(t)}")
    t._dynamo_marked_static = True
    return t


def _marked(tensor, index, kind):
    axes = [index] if isinstance(index, int) else list(index)  # as in torch, one that is not there has no effect
    vars(tensor).setdefault(kind, set()).update(axes)
    return axes


def mark_static_address(t, guard=True):
    """Does nothing: a graph does not depend on where a tensor lies."""


@dataclass(frozen=True, slots=True)
class _DimRange:
    """The bounds of a dimension, as files of torch's jagged tensors have them."""

    dim: int
    min: int
    max: int
