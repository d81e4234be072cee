"""Mica: tensors you can see through, with the names and the semantics of PyTorch.

Little is imported with the package; the rest comes when a program asks for it.
"""

import importlib as _importlib
from math import e, inf, nan, pi  # noqa: F401

from mica import _C, _einops, _tensor, random, storage  # noqa: F401 - _tensor gives Tensor its methods
from mica._C import *  # noqa: F403
from mica._legacy_types import TYPES as _tensor_types
from mica._settings import *  # noqa: F403
from mica.functional import *  # noqa: F403
from mica.random import *  # noqa: F403
from mica.storage import *  # noqa: F403
from mica.version import __version__  # noqa: F401

globals().update(_tensor_types)
newaxis = None

# Names that arrive with their module when they are first used.
_LAZY = {
    "enable_grad": "mica.autograd",
    "inference_mode": "mica.autograd",
    "no_grad": "mica.autograd",
    "set_grad_enabled": "mica.autograd",
    "explain": "mica.inspect",
    "GradScaler": "mica.amp",
    "autocast": "mica.amp",
    "is_autocast_cpu_enabled": "mica.amp.autocast_mode",
    "set_autocast_cpu_enabled": "mica.amp.autocast_mode",
    "get_autocast_cpu_dtype": "mica.amp.autocast_mode",
    "set_autocast_cpu_dtype": "mica.amp.autocast_mode",
    "get_autocast_gpu_dtype": "mica.amp.autocast_mode",
    "set_autocast_gpu_dtype": "mica.amp.autocast_mode",
    "_assert": "mica._conditions",
    "_assert_async": "mica._conditions",
    "_check": "mica._conditions",
    "_check_index": "mica._conditions",
    "_check_not_implemented": "mica._conditions",
    "_check_tensor_all": "mica._conditions",
    "_check_type": "mica._conditions",
    "_check_value": "mica._conditions",
    "load": "mica.serialization",
    "save": "mica.serialization",
    "compile": "mica._dynamo",
    "Event": "mica._streams",
    "Future": "mica.futures",
    "Stream": "mica._streams",
    "SymBool": "mica._symbolic",
    "SymFloat": "mica._symbolic",
    "SymInt": "mica._symbolic",
    "sym_float": "mica._symbolic",
    "sym_int": "mica._symbolic",
    "sym_ite": "mica._symbolic",
    "sym_max": "mica._symbolic",
    "sym_min": "mica._symbolic",
    "sym_not": "mica._symbolic",
    "sym_sum": "mica._symbolic",
    "sym_fresh_size": "mica._symbolic",
    "classes": "mica._classes",
    "ScriptModule": "mica.jit",
    "ScriptFunction": "mica.jit",
    "FunctionSchema": "mica._library.schema",
    "DispatchKey": "mica._c_names",
    "_check_with": "mica._conditions",
    "_check_tensor_all_with": "mica._conditions",
    "cond": "mica._higher_order_ops",
    "while_loop": "mica._higher_order_ops",
    "ops": "mica._ops",
    "vmap": "mica.func",
    "_dirichlet_grad": "mica._C",
    "_sample_dirichlet": "mica._C",
    "_standard_gamma": "mica._C",
    "_standard_gamma_grad": "mica._C",
    "_weight_norm": "mica._C",
    "_int_mm": "mica._C",
    "_weight_int8pack_mm": "mica._C",
    "_make_per_tensor_quantized_tensor": "mica._C",
    "_make_per_channel_quantized_tensor": "mica._C",
    "_sparse_coo_tensor_unsafe": "mica._C",
    "_sparse_mm": "mica._C",
    "_sparse_sum": "mica._C",
    "_sparse_softmax": "mica._C",
    "_sparse_log_softmax": "mica._C",
    "_validate_sparse_coo_tensor_args": "mica._C",
    "sparse_coo_tensor": "mica.sparse",
    "sparse_csr_tensor": "mica.sparse",
    "sparse_csc_tensor": "mica.sparse",
    "sparse_bsr_tensor": "mica.sparse",
    "sparse_bsc_tensor": "mica.sparse",
    "sparse_compressed_tensor": "mica.sparse",
    "qscheme": "mica._quantization_schemes",
    "per_tensor_affine": "mica._quantization_schemes",
    "per_channel_affine": "mica._quantization_schemes",
    "per_tensor_symmetric": "mica._quantization_schemes",
    "per_channel_symmetric": "mica._quantization_schemes",
    "per_channel_affine_float_qparams": "mica._quantization_schemes",
    "lobpcg": "mica._lobpcg",
    "pca_lowrank": "mica._lowrank",
    "svd_lowrank": "mica._lowrank",
    "printoptions": "mica._tensor_str",
    "set_printoptions": "mica._tensor_str",
    "get_printoptions": "mica._tensor_str",
}
_SUBMODULES = {
    "__config__", "__future__", "_dynamo", "_higher_order_ops", "_inductor", "_library", "_ops", "_streams",
    "_guards", "_subclasses", "_tensor_str", "_utils", "accelerator", "amp", "ao", "autograd", "backends", "compiler", "cpu",
    "cuda", "distributed", "distributions", "fft", "func", "futures", "fx", "hub", "inspect", "jit", "lab",
    "library", "linalg", "masked", "mps", "mtia", "multiprocessing", "nested", "nn", "onnx", "optim", "overrides",
    "profiler", "quasirandom", "return_types", "serialization", "signal", "sparse", "special", "testing", "torch_version", "types",
    "utils", "xpu",
}  # fmt: skip


def __getattr__(name):
    if name in _LAZY:
        value = getattr(_importlib.import_module(_LAZY[name]), name)
    elif name in _SUBMODULES:
        value = _importlib.import_module(f"mica.{name}")
    elif name == "_grouped_mm":
        value = _importlib.import_module("mica.nn.functional").grouped_mm
    elif name.startswith("_foreach_"):
        value = getattr(_importlib.import_module("mica._foreach"), name)
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(_LAZY) | _SUBMODULES)


def _more_of_the_engine(name):
    from mica import _c_names

    return _c_names.lookup(name)


_C.__getattr__ = _more_of_the_engine
_C.__path__ = [__file__.replace("__init__.py", "_c_modules")]
__all__ = [name for name in (*globals(), *_LAZY) if not name.startswith("_")]
