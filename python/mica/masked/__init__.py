"""Operations that leave out what a mask does not mark, and tensors that carry their mask.

masked.mean(x, -1, mask=x > 0), masked_tensor(x, x > 0).sum(-1)
"""

from mica.masked._ops import (
    _canonical_dim,
    _combine_input_and_mask,
    _input_mask,
    _output_mask,
    _reduction_identity,
    amax,
    amin,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    normalize,
    prod,
    softmax,
    softmin,
    std,
    sum,
    var,
)
from mica.masked._sparse_where import _where
from mica.masked.maskedtensor import _functions  # noqa: F401 - it answers for masked tensors
from mica.masked.maskedtensor.core import MaskedTensor, is_masked_tensor
from mica.masked.maskedtensor.creation import as_masked_tensor, masked_tensor

__all__ = [
    "MaskedTensor",
    "_canonical_dim",
    "_combine_input_and_mask",
    "_input_mask",
    "_output_mask",
    "_reduction_identity",
    "_where",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "as_masked_tensor",
    "cumprod",
    "cumsum",
    "is_masked_tensor",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "masked_tensor",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]
