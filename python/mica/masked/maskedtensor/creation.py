"""How masked tensors are made."""

from mica.masked.maskedtensor.core import MaskedTensor

__all__ = ["as_masked_tensor", "masked_tensor"]


def masked_tensor(data, mask, requires_grad=False):
    """A masked tensor with a copy of the data: a leaf, as `tensor` makes them."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data, mask):
    """The data with a mask, with its place in the graph, as `as_tensor` keeps it."""
    return MaskedTensor._from_values(data, mask)
