"""The memory format of the weights of convolutions."""

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module, classes, memory_format):
    for each in module.modules():
        if isinstance(each, classes):
            weight = each.weight.detach().clone(memory_format=memory_format)
            each.weight.data = weight.resize_(weight.size(), memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """Give the weights of all two-dimensional convolutions of the module a memory format."""
    from mica import nn

    return _convert(module, (nn.Conv2d, nn.ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module, memory_format):
    """Give the weights of all three-dimensional convolutions of the module a memory format."""
    from mica import nn

    return _convert(module, (nn.Conv3d, nn.ConvTranspose3d), memory_format)
