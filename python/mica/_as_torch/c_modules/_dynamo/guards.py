"""Checks of tensors that stand in code which torch has generated."""

__all__ = ["assert_alignment", "assert_size_stride", "copy_misaligned"]


def assert_size_stride(item, size, stride, op_name=None):
    """Raise if a tensor's sizes or strides are others. Strides of dimensions of size one do not count."""
    prefix = f"\nError in op: {op_name}\n" if op_name else ""
    if item.dim() != len(size) or item.dim() != len(stride):
        raise AssertionError(f"{prefix}wrong number of dimensions{item.dim()} for op: {op_name or ''}")
    if item.numel() == 0:
        return True
    wrong = [
        f"expected size {given_size}=={wanted_size}, stride {given_stride}=={wanted_stride} at dim={dim}"
        for dim, (given_size, wanted_size, given_stride, wanted_stride) in enumerate(
            zip(item.shape, size, item.stride(), stride, strict=True)
        )
        if given_size != wanted_size or (given_size > 1 and given_stride != wanted_stride)
    ]
    if wrong:
        raise AssertionError(prefix + "; ".join(wrong))
    return True


def assert_alignment(item, alignment, op_name=None):
    """Raise if the first byte of a tensor does not lie at a multiple of `alignment`."""
    prefix = f"\nError in op: {op_name}\n" if op_name else ""
    if alignment == 0:
        raise AssertionError(f"{prefix}alignment cannot be 0 in op: {op_name or ''}")
    if item.numel() and item.data_ptr() % alignment:
        raise AssertionError(f"{prefix}Expect the tensor to be {alignment} bytes aligned.")
    return True


def copy_misaligned(tensor):
    """The tensor, or a copy with its strides if it does not lie at a multiple of 16 bytes."""
    if tensor.numel() == 0 or tensor.data_ptr() % 16 == 0:
        return tensor
    return tensor.new_empty_strided(tensor.shape, tensor.stride()).copy_(tensor)
