"""Streams and events of whichever device: of CUDA those of mica.cuda, of the CPU the one that it has."""

import time

from mica import _C

__all__ = ["Event", "Stream"]


def _device(device):
    return _C._accelerator() or _C.device("cpu") if device is None else _C.device(device)


def _wait_for(device):
    if device.type not in ("cpu", "meta"):
        _C._synchronize(device)


def _check_names(name, given, known):
    if unknown := [each for each in given if each not in known]:
        raise TypeError(f"{name}() got an unexpected keyword argument {unknown[0]!r}")


class Stream:
    """The stream of a device. On the CPU there is one, in which everything happens in order."""

    def __new__(cls, device=None, priority=0, **kwargs):
        _check_names("Stream", kwargs, ("stream_id", "device_index", "device_type"))
        if _device(device).type == "cuda":
            from mica.cuda import Stream as CudaStream

            return CudaStream(device, priority, **kwargs)
        return super().__new__(cls)

    def __init__(self, device=None, priority=0, *, stream_id=0, device_index=None, device_type=None):
        self.device = _device("cpu" if device is None and device_type == 0 else device)
        self.priority, self.stream_id = priority, stream_id
        index = self.device.index if device_index is None else device_index
        self.device_index = -1 if index is None else index

    device_type = property(lambda self: {"cpu": 0, "cuda": 1}.get(self.device.type, 2))
    cuda_stream = property(lambda self: 0)

    def is_capturing(self):
        """False: nothing is captured into a graph on this device."""
        return False

    def query(self):
        """Whether the device has done all that was queued on it."""
        _wait_for(self.device)
        return True

    def synchronize(self):
        """Wait until the device has done all that was queued on it."""
        _wait_for(self.device)

    def wait_stream(self, stream):
        """Nothing to wait for: what comes later runs later."""

    def wait_event(self, event):
        """Nothing to wait for: what comes later runs later."""

    def record_event(self, event=None):
        """Record an event, a new one if none is given, at the present end of the stream."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def __eq__(self, other):
        return isinstance(other, Stream) and self.device == other.device

    def __hash__(self):
        return hash(self.device)

    def __repr__(self):
        return (
            f"torch.Stream device_type={self.device.type}, device_index={self.device_index}, stream_id={self.stream_id}"
        )


class Event:
    """A point in the work of a device."""

    def __new__(cls, device=None, *, enable_timing=False, blocking=False, interprocess=False):
        if _device(device).type == "cuda":
            from mica.cuda import Event as CudaEvent

            return CudaEvent(enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)
        return super().__new__(cls)

    def __init__(self, device=None, *, enable_timing=False, blocking=False, interprocess=False):
        self.device = _device(device)
        self.event_id = 0
        self._timed, self._at = enable_timing, None

    def record(self, stream=None):
        """Record the event at the present end of the stream. With timing, wait for the device, so that the time is that
        of its work."""
        if self._timed:
            _wait_for(self.device)
        self._at = time.perf_counter()

    def wait(self, stream=None):
        """Nothing to wait for: what comes later runs later."""

    def query(self):
        """Whether everything before the event is done."""
        _wait_for(self.device)
        return True

    def synchronize(self):
        """Wait until everything before the event is done."""
        _wait_for(self.device)

    def elapsed_time(self, end_event):
        """The milliseconds to another event."""
        if not (self._timed and end_event._timed):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or end_event._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1000

    def __repr__(self):
        return f"torch.Event device_type={self.device.type}, device_index={self.device.index}, event_id={self.event_id}"


Stream.__module__ = Event.__module__ = "torch"
