"""Changes of exported programs."""

import mica
from mica._subclasses.fake_tensor import FakeTensor
from mica.fx.node import map_aggregate
from mica.utils._pytree import tree_map_only

__all__ = ["move_to_device_pass"]


def move_to_device_pass(ep, location):
    """Move a program to a device: its state, its constants, its example inputs and the devices that its graph names.

    `location` is the device, or a dict from the names of devices to those of others. The program itself is changed,
    and returned.
    """

    def moved(device):
        if not isinstance(location, dict):
            return mica.device(location)
        known = location.get(str(device), location.get(device.type))
        return device if known is None else mica.device(known)

    def on_its_device(value):
        if isinstance(value, FakeTensor):
            with value.fake_mode:
                return value.to(moved(value.device))
        made = value.detach().to(moved(value.device))
        if isinstance(value, mica.nn.Parameter):
            return mica.nn.Parameter(made, value.requires_grad)
        return made.requires_grad_(value.requires_grad)

    for table in (ep._state_dict, ep._constants):
        for name, value in table.items():
            if isinstance(value, mica.Tensor):
                table[name] = on_its_device(value)
    for module in ep.graph_module.modules():
        if isinstance(module, mica.fx.GraphModule):
            _move_graph(module, moved, on_its_device)
    if ep._example_inputs is not None:
        ep._example_inputs = tree_map_only(mica.Tensor, on_its_device, ep._example_inputs)
    return ep


def _move_graph(module, moved, on_its_device):
    def device(value):
        return moved(value) if isinstance(value, mica.device) else value

    for node in module.graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, device), map_aggregate(node.kwargs, device)
        if "val" in node.meta:
            node.meta["val"] = tree_map_only(mica.Tensor, on_its_device, node.meta["val"])
    module.recompile()
