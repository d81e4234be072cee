"""Gives new nodes the metadata of the node whose execution makes them."""

import contextlib
import copy
import traceback

__all__ = [
    "annotate",
    "format_stack",
    "get_current_meta",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_grad_fn_seq_nr",
    "set_stack_trace",
]

# Fields that new nodes take over.
COPIED_FIELDS = (
    "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "ac_graph_id", "from_node",
    "quantization_tag", "custom", "partitioner_tag",
)  # fmt: skip
current_meta = {}
_is_preserved = [False]


@contextlib.contextmanager
def preserve_node_meta(enable=True):
    """A block in which new nodes get the metadata of the node whose execution makes them."""
    before, meta = _is_preserved[0], current_meta.copy()
    _is_preserved[0] = enable
    try:
        yield
    finally:
        _is_preserved[0] = before
        current_meta.clear()
        current_meta.update(meta)


def has_preserved_node_meta():
    """Whether new nodes get the metadata of the node whose execution makes them."""
    return _is_preserved[0]


@contextlib.contextmanager
def annotate(annotation_dict):
    """Entries of `node.meta["custom"]` for the nodes that are made in a with block."""
    had, before = "custom" in current_meta, current_meta.get("custom", {})
    current_meta["custom"] = {**before, **annotation_dict}
    try:
        yield
    finally:
        if had:
            current_meta["custom"] = before
        else:
            current_meta.pop("custom", None)


def set_stack_trace(stack):
    """Say where the nodes come from that are made next: lines of a traceback."""
    if _is_preserved[0] and stack:
        current_meta["stack_trace"] = "".join(stack)


def set_grad_fn_seq_nr(seq_nr):
    """A node of the backward pass begins, of the operation of this number."""
    if _is_preserved[0]:
        current_meta["grad_fn_seq_nr"] = [*current_meta.get("grad_fn_seq_nr", []), seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr():
    """The node of the backward pass that began last has ended."""
    if _is_preserved[0] and current_meta.get("in_grad_fn", 0):
        current_meta["grad_fn_seq_nr"] = current_meta["grad_fn_seq_nr"][:-1]
        current_meta["in_grad_fn"] -= 1


def format_stack():
    """The lines of the program that the running node comes from."""
    if _is_preserved[0]:
        return [current_meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextlib.contextmanager
def set_current_meta(node, pass_name=""):
    """A with block in which this node counts as the one that runs."""
    if not (_is_preserved[0] and node.meta):
        yield
        return
    before = current_meta.copy()
    current_meta.clear()
    current_meta.update(node.meta)
    try:
        yield
    finally:
        current_meta.clear()
        current_meta.update(before)


def get_current_meta():
    """The metadata of the node that runs, as a dict."""
    return current_meta


def hand_on(node):
    """Give a new node the metadata of the node that runs; returns whether a node runs."""
    if not _is_preserved[0]:
        return False
    if current_meta.get("stack_trace"):
        node.stack_trace = current_meta["stack_trace"]
    node.meta.update({name: copy.copy(current_meta[name]) for name in COPIED_FIELDS if name in current_meta})
    return True
