"""torch's settings of oneDNN. Mica's kernels are its own: the settings are kept and change nothing."""

import sys
import types

from mica.backends import _precision
from mica.backends._flags import setter_and_context

enabled = True
deterministic = False
allow_tf32 = None  # where torch has no Intel GPU
matmul = _precision.Precision("mkldnn", "matmul")
conv = _precision.Precision("mkldnn", "conv")
rnn = _precision.Precision("mkldnn", "rnn")

set_flags, flags = setter_and_context(
    __name__, enabled=False, deterministic=False, allow_tf32=True, fp32_precision="none"
)


def is_available():
    """False: oneDNN is not used."""
    return False


class _Module(types.ModuleType):
    @property
    def fp32_precision(self):
        """How exact products, convolutions and recurrent layers have to be. Mica's are exact."""
        return _precision.get("mkldnn")

    @fp32_precision.setter
    def fp32_precision(self, word):
        _precision.set("mkldnn", "all", word)


sys.modules[__name__].__class__ = _Module
