"""What a backend needs to know about the layers of a graph: their parameters and options."""

import mica
from mica import nn

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]


def default_matching(name, target_version):
    """The name under which an attribute is noted: its own."""
    return name


# Of a layer: the version of its states up to which the names hold, the names, and what they are called elsewhere.
module_fetch_book = {
    nn.Linear: (1, ["weight", "bias"], default_matching),
    nn.Conv2d: (
        1,
        ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"],
        default_matching,
    ),
    nn.BatchNorm2d: (2, ["weight", "bias", "running_mean", "running_var", "eps"], default_matching),
    nn.AdaptiveAvgPool2d: (1, [], default_matching),
    nn.MaxPool2d: (
        1,
        ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"],
        default_matching,
    ),
    nn.ReLU: (1, ["inplace"], default_matching),
}


def extract_attrs_for_lowering(mod):
    """The parameters and options of a layer by their names, and its class's name; `module_fetch_book` has the layers.

    Raises RuntimeError for a layer that the book does not have, or whose states have a later version.
    """
    name = mica.typename(mod)
    if type(mod) not in module_fetch_book:
        raise RuntimeError(f"{name} is not in the module_fetch_book yet, please add it to the module_fetch_book")
    version, names, matching = module_fetch_book[type(mod)]
    if version < mod._version:
        raise RuntimeError(
            f"Fetcher version {version} try to fetch {name} version {mod._version}, please upgrade the module_fetch_book"
        )
    found = {"name": name}
    found.update({each: getattr(mod, matching(each, mod._version)) for each in names})
    return found


def lift_lowering_attrs_to_nodes(fx_module):
    """Set `node.attrs_for_lowering` of the nodes that call layers, in graph modules within this one too."""
    modules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op != "call_module":
            continue
        if isinstance(modules[node.target], mica.fx.GraphModule):
            lift_lowering_attrs_to_nodes(modules[node.target])
        else:
            node.attrs_for_lowering = extract_attrs_for_lowering(modules[node.target])
