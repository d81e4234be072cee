"""The functions of networks: activations, normalisations, dropout, embeddings."""

from mica import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mica._nn_functional import *  # noqa: F403

globals().update({name: value for name, value in vars(_C._nn_functional).items() if not name.startswith("__")})

# Functions of the package that are known by this name too.
_SHARED = (
    "adaptive_avg_pool1d", "avg_pool1d", "bilinear", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "hardshrink",
    "native_channel_shuffle", "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "relu_", "rrelu_",
    "selu_", "threshold_",
)  # fmt: skip
globals().update({name: getattr(_C, name) for name in _SHARED})

from mica.nn.functional_attention import *  # noqa: E402, F403 - after what it replaces
from mica.nn.functional_attention import _canonical_mask, _check_key_padding_mask, _none_or_dtype  # noqa: E402, F401
from mica.nn.functional_grouped import *  # noqa: E402, F403
from mica.nn.functional_loss import *  # noqa: E402, F403
from mica.nn.functional_pooling import *  # noqa: E402, F403 - after what it replaces
from mica.nn.functional_scaled import *  # noqa: E402, F403
from mica.nn.functional_scaled_grouped import *  # noqa: E402, F403

__all__ = [name for name, value in globals().items() if callable(value) and not name.startswith("_")]

_OF_OVERRIDES = (
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
)
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


def __getattr__(name):
    # What torch's module imports for itself, and programs take from it.
    if name in _OF_OVERRIDES:
        import mica.overrides

        return getattr(mica.overrides, name)
    if name == "Tensor":
        return _C.Tensor
    if name == "_VF":
        from mica import _VF

        return _VF
    if name.startswith("_") and not name.startswith("__"):
        from mica.nn import _functional_helpers

        if name in _functional_helpers.__all__:
            return getattr(_functional_helpers, name)
    if name == "assert_int_or_pair":
        from mica._jit_internal import assert_int_or_pair

        return assert_int_or_pair
    if name == "boolean_dispatch":
        from mica._jit_internal import boolean_dispatch

        return boolean_dispatch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
