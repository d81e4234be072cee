"""Mica: tensors you can see through, with the names and the semantics of PyTorch.

Little is imported with the package; the rest comes when a program asks for it.
"""

import os as _os
import sys as _sys

from mica import _C, _tensor, random, storage  # noqa: F401 - _tensor gives Tensor its methods
from mica._as_torch.legacy_types import TYPES as _tensor_types
from mica._C import *  # noqa: F403
from mica._functions.settings import *  # noqa: F403
from mica._interop import einops as _einops  # noqa: F401
from mica.functional import *  # noqa: F403
from mica.random import *  # noqa: F403
from mica.storage import *  # noqa: F403
from mica.version import __version__  # noqa: F401

globals().update(_tensor_types)
newaxis = None
legacy_contiguous_format = contiguous_format  # noqa: F405

# Names that arrive with their module when they are first used.
_LAZY = {
    "enable_grad": "mica.autograd",
    "inference_mode": "mica.autograd",
    "no_grad": "mica.autograd",
    "set_grad_enabled": "mica.autograd",
    "explain": "mica.inspect",
    "GradScaler": "mica.amp",
    "Tag": "mica._functions.tags",
    "_has_compatible_shallow_copy_type": "mica._functions.kinship",
    "_storage_classes": "mica.storage",
    "_tensor_classes": "mica._as_torch.legacy_types",
    "_neg_view": "mica._C",
    "_conj": "mica._C",
    "autocast": "mica.amp",
    "is_autocast_cpu_enabled": "mica.amp.autocast_mode",
    "set_autocast_cpu_enabled": "mica.amp.autocast_mode",
    "get_autocast_cpu_dtype": "mica.amp.autocast_mode",
    "set_autocast_cpu_dtype": "mica.amp.autocast_mode",
    "get_autocast_gpu_dtype": "mica.amp.autocast_mode",
    "set_autocast_gpu_dtype": "mica.amp.autocast_mode",
    "_assert": "mica._functions.conditions",
    "_assert_async": "mica._functions.conditions",
    "_check": "mica._functions.conditions",
    "_check_index": "mica._functions.conditions",
    "_check_is_size": "mica._functions.conditions",
    "_check_not_implemented": "mica._functions.conditions",
    "_check_tensor_all": "mica._functions.conditions",
    "_check_type": "mica._functions.conditions",
    "_check_value": "mica._functions.conditions",
    "load": "mica.serialization",
    "load_gguf": "mica._checkpoints.gguf",
    "save": "mica.serialization",
    "compile": "mica._dynamo",
    "Event": "mica._functions.streams",
    "Future": "mica.futures",
    "Stream": "mica._functions.streams",
    "SymBool": "mica._functions.symbolic",
    "SymFloat": "mica._functions.symbolic",
    "SymInt": "mica._functions.symbolic",
    "sym_float": "mica._functions.symbolic_functions",
    "sym_int": "mica._functions.symbolic_functions",
    "sym_ite": "mica._functions.symbolic_functions",
    "sym_max": "mica._functions.symbolic_functions",
    "sym_min": "mica._functions.symbolic_functions",
    "sym_not": "mica._functions.symbolic_functions",
    "sym_sum": "mica._functions.symbolic_functions",
    "sym_sqrt": "mica._functions.symbolic_functions",
    "sym_fresh_size": "mica._functions.symbolic_functions",
    "classes": "mica._classes",
    "ScriptModule": "mica.jit",
    "ScriptFunction": "mica.jit",
    "FunctionSchema": "mica._library.schema",
    "DispatchKey": "mica._as_torch.c_names",
    "_check_with": "mica._functions.conditions",
    "_check_tensor_all_with": "mica._functions.conditions",
    "cond": "mica._higher_order_ops",
    "while_loop": "mica._higher_order_ops",
    "ops": "mica._ops",
    "vmap": "mica.func",
    "_dirichlet_grad": "mica._C",
    "_sample_dirichlet": "mica._C",
    "_amp_foreach_non_finite_check_and_unscale_": "mica._C",
    "_amp_update_scale_": "mica._C",
    "_standard_gamma": "mica._C",
    "_standard_gamma_grad": "mica._C",
    "_weight_norm": "mica._C",
    "_int_mm": "mica._C",
    "_scaled_mm": "mica._C",
    "_scaled_mm_v2": "mica._C",
    "_scaled_grouped_mm": "mica.nn.functional_scaled_grouped",
    "_scaled_grouped_mm_v2": "mica.nn.functional_scaled_grouped",
    "_weight_int8pack_mm": "mica._C",
    "_weight_int4pack_mm_for_cpu": "mica._C",
    "_convert_weight_to_int4pack_for_cpu": "mica._C",
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
    "qscheme": "mica._functions.quantization_schemes",
    "per_tensor_affine": "mica._functions.quantization_schemes",
    "per_channel_affine": "mica._functions.quantization_schemes",
    "per_tensor_symmetric": "mica._functions.quantization_schemes",
    "per_channel_symmetric": "mica._functions.quantization_schemes",
    "per_channel_affine_float_qparams": "mica._functions.quantization_schemes",
    "lobpcg": "mica._lobpcg",
    "pca_lowrank": "mica._lowrank",
    "svd_lowrank": "mica._lowrank",
    "printoptions": "mica._tensor_str",
    "set_printoptions": "mica._tensor_str",
    "get_printoptions": "mica._tensor_str",
}
_LAZY |= dict.fromkeys(["e", "inf", "nan", "pi"], "math")
_LAZY |= dict.fromkeys(
    [
        "_add_relu", "_addmm_activation", "batch_norm_update_stats", "_validate_compressed_sparse_indices", "_batch_norm_with_update", "_choose_qparams_per_tensor", "_chunk_cat",
        "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_dyn_quant_matmul_4bit",
        "_dyn_quant_pack_4bit_weight", "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_indices_copy",
        "_native_batch_norm_legit", "_safe_softmax", "_saturate_weight_to_fp16", "_segment_reduce", "_softmax_backward_data",
        "_unsafe_masked_index", "_unsafe_masked_index_put_accumulate", "_upsample_bilinear2d_aa",
        "_values_copy", "ccol_indices_copy", "choose_qparams_optimized", "col_indices_copy", "crow_indices_copy", "dsmm", "eig",
        "empty_quantized", "hash_tensor", "hsmm", "indices_copy", "lstsq", "matrix_rank", "native_dropout",
        "native_dropout_backward", "native_norm", "nuclear_norm", "quantized_batch_norm",
        "quantized_max_pool1d", "quantized_max_pool2d", "quantized_max_pool3d", "row_indices_copy", "saddmm",
        "segment_reduce", "slice_inverse", "solve", "spmm", "symeig", "values_copy",
    ],
    "mica._operators.rare",
)  # fmt: skip
# Functions that torch.ops.aten has: torch has them in its root too.
_LAZY |= dict.fromkeys(
    [
        "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_coalesce", "_convolution", "_convolution_mode",
        "_embedding_bag", "_fft_c2c", "_fft_c2r", "_fft_r2c", "_fused_rms_norm", "_is_all_true", "_is_any_true",
        "_log_softmax", "_log_softmax_backward_data", "_lu_with_info", "_pack_padded_sequence",
        "_pad_packed_sequence", "_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu",
        "_shape_as_tensor", "_softmax", "_unique", "_unique2", "_unsafe_index", "_validate_sparse_compressed_tensor_args",
    ],
    "mica._operators.root_names",
)  # fmt: skip
_LAZY |= dict.fromkeys(
    [f"_sym_{name}" for name in ("acos", "asin", "atan", "cos", "cosh", "log2", "sin", "sinh", "sqrt", "tan", "tanh")],
    "mica._functions.symbolic_functions",
)
_SUBMODULES = {
    "_VF", "__config__", "__future__", "_custom_ops", "_dynamo", "_functorch", "_guards", "_higher_order_ops", "_inductor", "_library", "_logging", "_ops", "_prims_common",
    "_vmap_internals",
    "_subclasses", "_tensor_str", "_utils", "accelerator", "amp", "ao", "autograd", "backends", "compiler", "cpu",
    "cuda", "distributed", "distributions", "export", "fft", "func", "futures", "fx", "hub", "inspect", "jit", "lab",
    "library", "linalg", "masked", "monitor", "mps", "mtia", "multiprocessing", "nested", "nn", "onnx", "optim", "overrides",
    "profiler", "quantization", "quasirandom", "return_types", "serialization", "signal", "sparse", "special",
    "testing", "torch_version", "types",
    "utils", "xpu",
}  # fmt: skip


def _module(name):
    __import__(name)
    return _sys.modules[name]


def __getattr__(name):
    if name == "Storage":  # follows the default dtype
        return storage.storage_class(_C.get_default_dtype())
    if name in _LAZY:
        value = getattr(_module(_LAZY[name]), name)
    elif name in _SUBMODULES:
        value = _module(f"mica.{name}")
    elif name == "_grouped_mm":
        value = _module("mica.nn.functional").grouped_mm
    elif name.startswith("_foreach_"):
        value = getattr(_module("mica._functions.foreach"), name)
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_LAZY, *_SUBMODULES, "Storage"})


def _more_of_the_engine(name):
    from mica._as_torch import c_names as _c_names

    return _c_names.lookup(name)


_C.__getattr__ = _more_of_the_engine
_C.__path__ = [__file__.replace("__init__.py", "_as_torch/c_modules")]
__all__ = [name for name in (*globals(), *_LAZY, "Storage") if not name.startswith("_")]
if _os.environ.get("TORCH_LOGS"):  # so that an unknown name is an error at once
    _module("mica._logging")
