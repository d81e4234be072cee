"""What a backend takes of a graph, and the inputs of the modules that a graph was cut into."""

import copy as copies
import dataclasses
import typing

import mica
from mica.fx.graph_module import GraphModule
from mica.fx.passes.tools_common import CALLABLE_NODE_OPS, is_node_output_tensor

__all__ = [
    "FxNetAccNodesFinder", "FxNetSplitterInternalError", "SplitResult", "Subgraph", "generate_inputs_for_submodules",
]  # fmt: skip


class FxNetSplitterInternalError(Exception):
    """A graph could not be cut."""


@dataclasses.dataclass
class Subgraph:
    """Nodes that run together: on the accelerator, or on the CPU."""

    is_acc: bool
    nodes: list
    device_ordinal: int | None = None


class SplitResult(typing.NamedTuple):
    """A module that was cut, the inputs of its parts by their names, and how the names of the CPU's parts begin."""

    split_module: GraphModule
    submodule_inputs: dict
    non_acc_submodule_prefix: str


def generate_inputs_for_submodules(model, inputs, target_submodules, deepcopy=False):
    """Run a module, and return what the submodules of these names are called with: a dict of tuples.

    Arguments by name are left out, and submodules that are not called have no entry. With `deepcopy` the values are
    copies, which the rest of the run does not change.
    """
    found, handles = {}, []
    names = {module: name for name, module in model.named_modules() if name in set(target_submodules)}

    def note(module, given):
        found[names[module]] = copies.deepcopy(given) if deepcopy else given

    try:
        for module in names:
            handles.append(module.register_forward_pre_hook(note))
        with mica.no_grad():
            model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


class FxNetAccNodesFinder:
    """Finds the nodes that an accelerator takes.

    A node that it supports is left out if it hands the CPU what is no tensor, or is handed such a value by the CPU,
    unless `allow_non_tensor`. `ShapeProp` has run before.
    """

    def __init__(self, module, operator_support, allow_non_tensor):
        self.module, self.operator_support, self.allow_non_tensor = module, operator_support, allow_non_tensor
        self.acc_nodes = set()

    def reduce_acc_nodes_non_tensor_input_helper(self, cpu_worklist):
        """Leave out the nodes that read from those of a list, and in turn those that read what is no tensor from them."""
        while cpu_worklist:
            for user in cpu_worklist.pop(0).users:
                if user in self.acc_nodes:
                    self.acc_nodes.remove(user)
                    if not is_node_output_tensor(user):
                        cpu_worklist.append(user)

    def reduce_acc_nodes_non_tensor_input(self):
        """Leave out the nodes to which the CPU hands what is no tensor."""
        cpu = [node for node in self.module.graph.nodes if node.op in CALLABLE_NODE_OPS and node not in self.acc_nodes]
        self.reduce_acc_nodes_non_tensor_input_helper([node for node in cpu if not is_node_output_tensor(node)])

    def reduce_acc_nodes_non_tensor_output(self):
        """Leave out the nodes that hand the CPU what is no tensor."""
        while True:
            bound = [
                node
                for node in self.acc_nodes
                if not is_node_output_tensor(node) and any(user not in self.acc_nodes for user in node.users)
            ]
            if not bound:
                return
            self.acc_nodes.difference_update(bound)
            self.reduce_acc_nodes_non_tensor_input_helper(bound)

    def __call__(self):
        """The nodes, as a set."""
        submodules = dict(self.module.named_modules())
        self.acc_nodes = {
            node
            for node in self.module.graph.nodes
            if node.op in CALLABLE_NODE_OPS and self.operator_support.is_node_supported(submodules, node)
        }
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        return self.acc_nodes
