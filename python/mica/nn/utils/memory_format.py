"""The memory format of the weights of convolutions."""

from mica.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module, classes, memory_format):
    for each in module.modules():
        if isinstance(each, classes):
            weight = each.weight.detach().clone(memory_format=memory_format)
            each.weight.data = weight.resize_(weight.size(), memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """Give the weights of all two-dimensional convolutions of the module a memory format."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module, memory_format):
    """Give the weights of all three-dimensional convolutions of the module a memory format."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
