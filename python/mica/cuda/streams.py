"""Streams, which run what is queued on them in order, and events, which mark points in them."""

import ctypes

from mica import _C


def _cuda_device(device=None):
    """A device of CUDA with an index, from all that torch takes for one."""
    if device is None:
        return _C.device("cuda", _C._current_device("cuda"))
    if isinstance(device, int):
        return _C.device("cuda", device)
    device = _C.device(device)
    if device.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return _C.device("cuda", _C._current_device("cuda")) if device.index is None else device


class Stream:
    """Work of one GPU that runs in the order it was queued."""

    def __new__(cls, device=None, priority=0, **kwargs):
        if not _C._device_count("cuda"):
            raise RuntimeError("torch.cuda.Stream requires CUDA support")
        self = super().__new__(cls)
        if "stream_ptr" in kwargs or "stream_id" in kwargs:
            handle = kwargs.get("stream_ptr", kwargs.get("stream_id"))
            device = kwargs.get("device_index", device)
            self.device = _cuda_device(device)
        else:
            self.device = _cuda_device(device)
            handle = _C._new_stream(self.device, priority)
        self.cuda_stream = handle
        self.priority = priority
        return self

    @property
    def stream_id(self):
        """The stream's number: its address."""
        return self.cuda_stream

    @property
    def device_index(self):
        """The index of the stream's GPU."""
        return self.device.index

    @property
    def device_type(self):
        """torch's number for CUDA."""
        return 1

    @property
    def _as_parameter_(self):
        return ctypes.c_void_p(self.cuda_stream)

    @staticmethod
    def priority_range():
        """The lowest and the highest priority."""
        return 0, -5

    def wait_event(self, event):
        """Let the stream's later work start after the event."""
        event.wait(self)

    def wait_stream(self, stream):
        """Let the stream's later work start after what is queued on the other one now."""
        self.wait_event(stream.record_event())

    def record_event(self, event=None):
        """Mark the stream's present end with an event, a new one if none is given."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self):
        """Whether all that was queued is done."""
        return _C._stream_done(self.device, self.cuda_stream)

    def synchronize(self):
        """Wait until all that was queued is done."""
        _C._synchronize_stream(self.device, self.cuda_stream)

    def __eq__(self, other):
        if not isinstance(other, Stream):
            return NotImplemented
        return self.cuda_stream == other.cuda_stream and self.device == other.device

    def __hash__(self):
        return hash((self.cuda_stream, self.device.index))

    def __repr__(self):
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self):
        self._entered = getattr(self, "_entered", [])
        context = StreamContext(self)
        self._entered.append(context)
        context.__enter__()
        return self

    def __exit__(self, *exception):
        self._entered.pop().__exit__(*exception)


class ExternalStream(Stream):
    """A stream that another library has made and keeps."""

    def __new__(cls, stream_ptr, device=None, **kwargs):
        return super().__new__(cls, device=device, stream_ptr=stream_ptr)


class Event:
    """A point in a stream's work, to wait for or to measure from."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        if _C._device_count("cuda") == 0:
            raise RuntimeError("Tried to instantiate dummy base class Event: torch.cuda.Event requires CUDA support")
        if interprocess:
            raise NotImplementedError("events are not shared between processes here")
        if external:
            raise NotImplementedError(
                "Event(external=True) is not in Mica: an event that is recorded during a capture orders the work within the graph"
            )
        self._timing, self._handle, self.device = enable_timing, None, None

    @property
    def cuda_event(self):
        """The event's address; 0 before it is first recorded."""
        return self._handle or 0

    def record(self, stream=None):
        """Mark the stream's present end, the current stream's if none is given."""
        stream = current_stream() if stream is None else stream
        if self._handle is None:
            self.device = stream.device
            self._handle = _C._new_event(self.device, self._timing)
        elif self.device != stream.device:
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {stream.device}.")
        _C._record_event(stream.device, self._handle, stream.cuda_stream)

    def wait(self, stream=None):
        """Let the stream's later work start after the event, the current stream's if none is given."""
        if self._handle is not None:
            stream = current_stream() if stream is None else stream
            _C._wait_event(stream.device, self._handle, stream.cuda_stream)

    def query(self):
        """Whether everything before the event is done."""
        return self._handle is None or _C._event_done(self.device, self._handle)

    def synchronize(self):
        """Wait until everything before the event is done."""
        if self._handle is not None:
            _C._synchronize_event(self.device, self._handle)

    def elapsed_time(self, end_event):
        """Milliseconds from this event to the other."""
        if not (self._timing and end_event._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._handle is None or end_event._handle is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return _C._elapsed_ms(self.device, self._handle, end_event._handle)

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            _C._free_event(self.device, self._handle)

    def __repr__(self):
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self._handle else "<torch.cuda.Event uninitialized>"


def _stream_of(device, handle):
    return Stream(device=device, stream_ptr=handle)


def current_stream(device=None):
    """The stream on which this thread queues."""
    device = _cuda_device(device)
    return _stream_of(device, _C._current_stream(device))


def default_stream(device=None):
    """The stream that every thread begins with."""
    return _stream_of(_cuda_device(device), 0)


def set_stream(stream):
    """Queue on this stream from now on; None changes nothing."""
    if stream is not None:
        _C._set_device(stream.device)
        _C._set_stream(stream.device, stream.cuda_stream)


class StreamContext:
    """Queue on a stream in a with block; None changes nothing."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is None:
            return
        self._index = _C._current_device("cuda")
        self._before = current_stream(self.stream.device)
        set_stream(self.stream)

    def __exit__(self, *exception):
        if self.stream is None:
            return
        _C._set_stream(self._before.device, self._before.cuda_stream)
        _C._set_device(_C.device("cuda", self._index))


def stream(stream):
    """A context in which this stream is the current one; None changes nothing."""
    return StreamContext(stream)
