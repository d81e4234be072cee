"""torch's settings of CUDA's libraries: how exact products are, and whether attention may go to cuDNN. The others are kept and
change nothing."""

import contextlib
import enum
import warnings

from mica import _C
from mica.backends import _precision


class _Products:
    """Settings of products. `allow_tf32` and `fp32_precision` round the inputs of float32 products; the others are kept."""

    __slots__ = (
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
        "allow_fp16_reduced_precision_reduction",
    )

    def __init__(self):
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False

    @property
    def allow_tf32(self):
        """Whether products of float32 may round their inputs to TF32."""
        return _precision.products_allowed()

    @allow_tf32.setter
    def allow_tf32(self, allowed):
        _precision.allow_products(allowed)

    @property
    def fp32_precision(self):
        """The precision in torch's newer words: "tf32" rounds, "ieee" does not, "none" leaves it to the wider settings."""
        return _precision.get("cuda", "matmul")

    @fp32_precision.setter
    def fp32_precision(self, word):
        _precision.set("cuda", "matmul", word)


matmul = _Products()
_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def is_built():
    """Whether there is a CUDA backend and a device for it."""
    return _C._device_count("cuda") > 0


def flash_sdp_enabled():
    """Whether flash attention was allowed. Nothing depends on it."""
    return _attention["flash"]


def enable_flash_sdp(enabled):
    """Note whether flash attention is allowed. Nothing depends on it."""
    _attention["flash"] = enabled


def mem_efficient_sdp_enabled():
    """Whether memory-efficient attention was allowed. Nothing depends on it."""
    return _attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled):
    """Note whether memory-efficient attention is allowed. Nothing depends on it."""
    _attention["mem_efficient"] = enabled


def math_sdp_enabled():
    """Whether attention as separate operations was allowed. Nothing depends on it."""
    return _attention["math"]


def enable_math_sdp(enabled):
    """Note whether attention as separate operations is allowed. Nothing depends on it."""
    _attention["math"] = enabled


def cudnn_sdp_enabled():
    """Whether cuDNN's attention is allowed."""
    return _attention["cudnn"]


def enable_cudnn_sdp(enabled):
    """Allow or forbid cuDNN's attention, where Mica's own kernels take its place."""
    _attention["cudnn"] = enabled
    if _C._device_count("cuda") > 0:
        _C._set_backend_flag("cuda", "cudnn_attention", bool(enabled))


@contextlib.contextmanager
def _attention_settings(cudnn, **settings):
    before = dict(_attention)
    _attention.update(settings)
    enable_cudnn_sdp(cudnn)
    try:
        yield {}
    finally:
        _attention.update(before)
        enable_cudnn_sdp(before["cudnn"])


def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """The older form of nn.attention.sdpa_kernel."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. "
        "Please see `torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=2,
    )
    return _attention_settings(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )


class SDPAParams:
    """The inputs of attention, as torch's functions that choose a kernel take them."""

    def __init__(self, query, key, value, attn_mask, dropout, is_causal, enable_gqa=False):
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


def can_use_flash_attention(params, debug=False):
    """Return False: torch's flash attention is not there. Mica's attention has kernels of its own."""
    return False


can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention


def is_flash_attention_available():
    """Return False: torch's flash attention is not there. Mica's attention has kernels of its own."""
    return False


def _preference(kind, *names):
    """A function that keeps which library is preferred, and says which. What runs does not depend on it."""
    choices = enum.Enum(kind, [name.capitalize() for name in names], module="torch._C")
    kept = [choices["Default"]]

    def preferred(backend=None):
        if isinstance(backend, str):
            if backend not in names:
                raise RuntimeError(f"Unknown input value. Choose from: {', '.join(names)}.")
            kept[0] = choices[backend.capitalize()]
        elif isinstance(backend, choices):
            kept[0] = backend
        elif backend is not None:
            raise RuntimeError(
                f"Unknown input value type. Choose from: {', '.join(names)}. Got {type(backend).__name__}"
            )
        return kept[0]

    return preferred


preferred_linalg_library = _preference("_LinalgBackend", "default", "cusolver", "magma")
preferred_blas_library = _preference("_BlasBackend", "default", "cublas", "cublaslt", "hipblaslt", "ck")
preferred_rocm_fa_library = _preference("_ROCmFABackend", "default", "aotriton", "ck")


def fp16_bf16_reduction_math_sdp_allowed():
    """Whether reductions of 16-bit attention may be computed in 16 bits, as it was set."""
    return _reduced["math"]


def allow_fp16_bf16_reduction_math_sdp(enabled):
    """Keep the setting; Mica computes these reductions in float32."""
    _reduced["math"] = enabled


_reduced = {"math": False}


class _PlanCache:
    """torch's settings of the cache of cuFFT's plans. Mica's backend keeps plans by itself, so that nothing is set here."""

    size, max_size = 0, 4096

    def __getitem__(self, device):
        return self

    def clear(self):
        """Do nothing: the backend keeps plans by itself."""


cufft_plan_cache = _PlanCache()
