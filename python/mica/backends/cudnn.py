"""torch's settings of cuDNN. Mica's kernels are its own, and deterministic: the settings are kept and change nothing."""

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
    """False: cuDNN is not used."""
    return False


def version():
    """Return None: cuDNN is not used, so that it has no version."""


def is_acceptable(tensor):
    """False: cuDNN is not used."""
    return False
