"""Tensors that carry a mask, which marks the elements that have a meaning."""

from mica.masked.maskedtensor.core import MaskedTensor, is_masked_tensor
from mica.masked.maskedtensor.creation import as_masked_tensor, masked_tensor

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
