"""Tensors that carry a mask of what in them is meant."""

from mica.masked.maskedtensor.core import MaskedTensor, is_masked_tensor
from mica.masked.maskedtensor.creation import as_masked_tensor, masked_tensor

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
