"""Mica: tensors you can see through, with the names and the semantics of PyTorch."""

from mica import _C, autograd, backends, cuda, return_types, testing, utils
from mica._C import *  # noqa: F403
from mica._tensor_str import set_printoptions
from mica.autograd import enable_grad, inference_mode, no_grad, set_grad_enabled
from mica.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__version__ = "0.1.0"

# The names of the extension that do not begin with an underscore are the package's.
__all__ = [name for name in dir(_C) if not name.startswith("_")]
__all__ += [
    "autograd",
    "backends",
    "cuda",
    "enable_grad",
    "get_rng_state",
    "inference_mode",
    "initial_seed",
    "manual_seed",
    "no_grad",
    "return_types",
    "seed",
    "set_grad_enabled",
    "set_printoptions",
    "set_rng_state",
    "testing",
    "utils",
]
