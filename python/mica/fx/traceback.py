"""Gives new nodes the metadata of the node whose execution makes them."""

import contextlib
import copy
import enum
import functools
import traceback

__all__ = [
    "NodeSource",
    "NodeSourceAction",
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "get_current_replay_node",
    "get_graph_provenance_json",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_current_replay_node",
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
_replayed = [None]


class NodeSourceAction(enum.Enum):
    """How a node came from another."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """Where a node comes from: the name, the target and the graph of another node, and what made the new one of it.

    `node.meta["from_node"]` has them; `from_node` has where the other node came from.
    """

    class NodeInfo:
        """The name, the target and the graph (`id(graph)`) of a node."""

        def __init__(self, name, target, graph_id):
            self.name, self.target, self.graph_id = name, target, graph_id

    def __init__(self, node, pass_name="", action=None):
        actions = action if isinstance(action, list) else [] if action is None else [action]
        for each in actions:
            if not isinstance(each, NodeSourceAction):
                raise AssertionError(f"Expected NodeSourceAction, got {type(each)}")
        self.pass_name, self.action, self.node_info, self.from_node = pass_name, actions, None, []
        if node is not None:
            self.node_info = self.NodeInfo(node.name, str(node.target), id(node.graph))
            self.from_node = copy.deepcopy(node.meta.get("from_node", []))

    @property
    def name(self):
        """The name of the node."""
        return self.node_info.name if self.node_info else ""

    @property
    def target(self):
        """What the node called, as text."""
        return self.node_info.target if self.node_info else ""

    @property
    def graph_id(self):
        """The `id` of the node's graph; -1 without a node."""
        return self.node_info.graph_id if self.node_info else -1

    def _actions(self):
        return "+".join(each.value for each in self.action)

    def print_readable(self, indent=0):
        """The source and its own sources as text, a line for each."""
        line = f"(name={self.name}, pass_name={self.pass_name}, action={self._actions()}, graph_id={self.graph_id})\n"
        return " " * 4 * indent + line + "".join(each.print_readable(indent + 1) for each in self.from_node)

    __repr__ = print_readable

    def to_dict(self):
        """The source as a dict of texts, numbers and lists of such dicts."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._actions(),
            "from_node": [each.to_dict() for each in self.from_node],
        }

    @classmethod
    def _from_dict(cls, d):
        """The source that `to_dict` told; None for None."""
        if d is None:
            return None
        made = cls(None, d["pass_name"], [NodeSourceAction(each) for each in d["action"].split("+") if each])
        if d["name"]:
            made.node_info = cls.NodeInfo(d["name"], d["target"], d["graph_id"])
        made.from_node = [cls._from_dict(each) for each in d["from_node"]]
        return made

    def __eq__(self, other):
        return self.to_dict() == other.to_dict() if isinstance(other, NodeSource) else False

    def __hash__(self):
        return hash(repr(self.to_dict()))


def get_graph_provenance_json(graph):
    """A dict: for each node that calls a function its sources (`node.meta["from_node"]`) as dicts."""
    return {
        node.name: [each.to_dict() for each in node.meta.get("from_node", [])]
        for node in graph.nodes
        if node.op == "call_function"
    }


@contextlib.contextmanager
def set_current_replay_node(node):
    """A with block in which `get_current_replay_node` has this node."""
    before, _replayed[0] = _replayed[0], node
    try:
        yield
    finally:
        _replayed[0] = before


def get_current_replay_node():
    """The node of the innermost block of `set_current_replay_node`, or None."""
    return _replayed[0]


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


def annotate_fn(annotation_dict):
    """A decorator: calls of the function run within `annotate(annotation_dict)`."""

    def decorated(function):
        @functools.wraps(function)
        def annotated(*args, **kwargs):
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated

    return decorated


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
    """A with block in which this node counts as the one that runs; new nodes have it as their source."""
    if not (_is_preserved[0] and node.meta):
        yield
        return
    before = current_meta.copy()
    current_meta.clear()
    current_meta.update(node.meta)
    current_meta["from_node"] = [NodeSource(node, pass_name, NodeSourceAction.CREATE)]
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
