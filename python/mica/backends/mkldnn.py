"""torch's settings of oneDNN. Mica's kernels are its own: the settings are kept and change nothing."""

from mica.backends._flags import setter_and_context

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"

set_flags, flags = setter_and_context(__name__, ("enabled", "deterministic", "allow_tf32", "fp32_precision"))


def is_available():
    """False: oneDNN is not used."""
    return False
