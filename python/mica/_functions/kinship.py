"""Groups tensors of one kind."""


def _has_compatible_shallow_copy_type(input, from_):
    """Whether a tensor can take another's elements in place of its own: both have one layout, on one type of device."""
    return input.layout == from_.layout and input.device.type == from_.device.type
