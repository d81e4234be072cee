"""Settings of cuDNN, which computes convolutions and recurrent layers on GPUs. `allow_tf32` says how exact they are; without
`enabled`, recurrent layers run by Mica's own kernels. The others are kept and change nothing."""

import sys
import types

from mica import _C
from mica.backends._flags import setter_and_context

enabled = True
benchmark = False
benchmark_limit = None
deterministic = False
allow_tf32 = True
fp32_precision = "none"

set_flags, flags = setter_and_context(
    __name__, ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision")
)


def is_available():
    """Whether the library is there and a GPU for it."""
    return _C._cudnn_available()


def version():
    """The version of the library as a number, 91900 for 9.19.0; None where it or a GPU is missing."""
    return _C._cudnn_version()


def is_acceptable(tensor):
    """Whether cuDNN takes such a tensor."""
    return tensor.is_cuda and tensor.is_floating_point() and is_available()


class _Module(types.ModuleType):
    """The module, which tells the backend what concerns it."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        flag = {"allow_tf32": "convolution_tf32", "enabled": "cudnn_recurrent"}.get(name)
        if flag and _C._device_count("cuda") > 0:
            _C._set_backend_flag("cuda", flag, bool(value))


sys.modules[__name__].__class__ = _Module
