"""Transforms of random variables, with the logarithm of the determinant of their Jacobian."""

from mica.distributions._transform_base import (
    ComposeTransform,
    IndependentTransform,
    Transform,
    _InverseTransform,  # noqa: F401 - packages make inverses of transforms of their own
    identity_transform,
)
from mica.distributions._transforms_elementwise import (
    AbsTransform,
    AffineTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
)
from mica.distributions._transforms_elementwise import (
    clipped_sigmoid as _clipped_sigmoid,  # noqa: F401 - packages make transforms of their own with it
)
from mica.distributions._transforms_joined import CatTransform, StackTransform
from mica.distributions._transforms_vector import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    ReshapeTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]

for _name in __all__:  # a pickled transform names the module that torch has it in
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
