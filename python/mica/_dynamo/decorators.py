"""Marks on functions and tensors for a compiler; they stay as they are."""

from dataclasses import dataclass

from mica._dynamo import (  # noqa: F401
    allow_in_graph,
    disable,
    disallow_in_graph,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
    nonstrict_trace,
    set_stance,
    step_unsupported,
    substitute_in_graph,
)
from mica._dynamo.leaf_functions import leaf_function  # noqa: F401


@dataclass(frozen=True, slots=True)
class _DimRange:
    """The bounds of a dimension, as files of torch's jagged tensors have them."""

    dim: int
    min: int
    max: int
