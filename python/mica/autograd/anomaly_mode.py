"""Finds the forward call behind a failing backward."""

import warnings

from mica import _C

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class set_detect_anomaly:
    """Switch anomaly detection on or off, from the call on; as a context manager until the end of the block.

    While on, every node remembers the stack of its forward call, which is shown when its backward fails; and a backward
    that produces NaN is an error (unless check_nan=False). It makes programs slow.
    """

    def __init__(self, mode, check_nan=True):
        self.prev = _C.is_anomaly_enabled()
        self.prev_check_nan = _C.is_anomaly_check_nan_enabled()
        _C.set_anomaly_enabled(mode, check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        _C.set_anomaly_enabled(self.prev, self.prev_check_nan)


class detect_anomaly(set_detect_anomaly):
    """Anomaly detection for the length of a block."""

    def __init__(self, check_nan=True):
        self.prev = _C.is_anomaly_enabled()
        self.prev_check_nan = _C.is_anomaly_check_nan_enabled()
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self):
        _C.set_anomaly_enabled(True, self.check_nan)
