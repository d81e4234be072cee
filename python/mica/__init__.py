"""Mica: tensors you can see through, with the names and the semantics of PyTorch.

Little is imported with the package; the rest comes when a program asks for it.
"""

import importlib as _importlib

from mica import _C, random, storage
from mica._C import *  # noqa: F403
from mica._legacy_types import TYPES as _tensor_types
from mica._settings import (
    are_deterministic_algorithms_enabled,
    compiled_with_cxx11_abi,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    get_num_interop_threads,
    is_deterministic_algorithms_warn_only_enabled,
    is_warn_always_enabled,
    set_default_tensor_type,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_num_interop_threads,
    set_warn_always,
    typename,
    use_deterministic_algorithms,
)
from mica.functional import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_shapes,
    broadcast_tensors,
    cartesian_prod,
    chain_matmul,
    einsum,
    histogramdd,
    meshgrid,
    nonzero,
    split,
    tensordot,
    unique,
    unique_consecutive,
)
from mica.random import get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from mica.storage import TypedStorage, UntypedStorage, is_storage
from mica.version import __version__

from mica import _einops, _tensor  # isort: skip - they give Tensor its methods, and einops its backend

globals().update(_tensor_types)
globals().update(storage._CLASSES)

# Names that arrive with their module when they are first used.
_LAZY = {
    "enable_grad": "mica.autograd",
    "inference_mode": "mica.autograd",
    "no_grad": "mica.autograd",
    "set_grad_enabled": "mica.autograd",
    "printoptions": "mica._tensor_str",
    "set_printoptions": "mica._tensor_str",
    "get_printoptions": "mica._tensor_str",
}
_SUBMODULES = {"autograd", "backends", "cuda", "nn", "overrides", "return_types", "testing", "utils"}


def __getattr__(name):
    if name in _LAZY:
        value = getattr(_importlib.import_module(_LAZY[name]), name)
    elif name in _SUBMODULES:
        value = _importlib.import_module(f"mica.{name}")
    else:
        raise AttributeError(f"module 'mica' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(_LAZY) | _SUBMODULES)


__all__ = [name for name in (*globals(), *_LAZY) if not name.startswith("_")]
