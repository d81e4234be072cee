"""Settings of cuDNN, which computes convolutions and recurrent layers on GPUs. `allow_tf32` and `fp32_precision` say how exact
they are; `deterministic` keeps convolutions to engines that repeat their results; `benchmark` compares all engines
of a convolution when it is first met; without `enabled`, recurrent layers run
by Mica's own kernels. The others are kept and change nothing."""

import sys
import types

from mica import _C
from mica.backends import _precision
from mica.backends._flags import setter_and_context

enabled = True
benchmark = False
benchmark_limit = None
deterministic = False
depthwise_kernel = "auto"
conv = _precision.Precision("cuda", "conv")
rnn = _precision.Precision("cuda", "rnn")

set_flags, flags = setter_and_context(
    __name__,
    enabled=False,
    benchmark=False,
    benchmark_limit=10,
    deterministic=False,
    allow_tf32=True,
    fp32_precision="none",
    depthwise_kernel="auto",
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


# The names of the backend's own flags.
_FLAGS = {"deterministic": "cudnn_deterministic", "benchmark": "cudnn_benchmark", "enabled": "cudnn_recurrent"}


class _Module(types.ModuleType):
    """The module, which tells the backend what concerns it."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        flag = _FLAGS.get(name)
        if flag and _C._device_count("cuda") > 0:
            _C._set_backend_flag("cuda", flag, bool(value))

    @property
    def allow_tf32(self):
        """Whether convolutions and recurrent layers of float32 may round their inputs to TF32."""
        return _precision.layers_allowed()

    @allow_tf32.setter
    def allow_tf32(self, allowed):
        _precision.allow_layers(allowed)

    @property
    def fp32_precision(self):
        """The precision of everything that cuDNN and cuBLAS compute, in torch's newer words."""
        return _precision.get("cuda")

    @fp32_precision.setter
    def fp32_precision(self, word):
        _precision.set("cuda", "all", word)


sys.modules[__name__].__class__ = _Module
