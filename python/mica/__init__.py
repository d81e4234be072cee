"""Mica: tensors you can see through, with the names and the semantics of PyTorch."""

from mica import _C, backends, cuda, return_types
from mica._C import *  # noqa: F403
from mica.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state

__version__ = "0.1.0"

# The names of the extension that do not begin with an underscore are the package's.
__all__ = [name for name in dir(_C) if not name.startswith("_")]
__all__ += ["backends", "cuda", "get_rng_state", "initial_seed", "manual_seed", "return_types", "seed", "set_rng_state"]
