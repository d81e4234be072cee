"""A profile of a block of code, and names for parts of it. mica.profiler has schedules and traces on top."""

import functools
import warnings
from typing import ClassVar

from mica import _C
from mica.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg, events_from

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "profile", "record_function"]


class record_function:
    """Give a range of the program a name: as a context manager or as a decorator. Costs little while nobody profiles."""

    def __init__(self, name, args=None):
        self.name = name
        self.args = args
        self._open = False

    def __enter__(self):
        self._open = _C._profiler_recording()
        if self._open:
            _C._profiler_begin(self.name)
        return self

    def __exit__(self, *exception):
        if self._open:
            _C._profiler_end()

    def __call__(self, function):
        @functools.wraps(function)
        def named(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return named


class profile:
    """Records the operations, backward nodes and named ranges that this thread runs in a `with` block.

    One profiler does all of it: `use_kineto` and `with_modules` change nothing. A block is one recording, with nothing to
    accumulate (`acc_events`), to name (`custom_trace_id_callback`) or to wait for (`post_processing_timeout_s`).
    """

    def __init__(
        self,
        enabled=True,
        *,
        use_cuda=False,
        use_device=None,
        record_shapes=False,
        with_flops=False,
        profile_memory=False,
        with_stack=False,
        with_modules=False,
        use_kineto=False,
        use_cpu=True,
        experimental_config=None,
        acc_events=False,
        custom_trace_id_callback=None,
        post_processing_timeout_s=None,
        activity_filters=None,
    ):
        if experimental_config is not None or activity_filters is not None:
            raise NotImplementedError("profile: experimental_config= and activity_filters= are about torch's profiler")
        if use_cuda:
            warnings.warn(
                "The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead.",
                FutureWarning,
                stacklevel=2,
            )
            use_device = "cuda"
        self.enabled = enabled
        self.record_shapes = record_shapes or with_flops
        self.with_flops = with_flops
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        if use_device not in (None, "cuda"):
            raise AssertionError(f"Invalid use_device value {use_device!r}: there is a profiler for 'cuda'")
        if use_device == "cuda" and not _C._device_count("cuda"):
            warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=2)
            use_device = None
        if not use_cpu and use_device is None:
            raise AssertionError("No activities specified for the profiler")
        self.use_device = use_device
        self.function_events = None
        self.entered = False

    def __enter__(self):
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        if self.use_device:
            _C._backend_query(self.use_device, "profiler_start", "")
        _C._profiler_start(shapes=self.record_shapes, memory=self.profile_memory, stacks=self.with_stack)
        return self

    def __exit__(self, *exception):
        if self.enabled:
            options = {"profile_memory": self.profile_memory, "with_flops": self.with_flops}
            rows, device_rows = _C._profiler_stop(), ()
            if self.use_device:
                import json

                device_rows = json.loads(_C._backend_query(self.use_device, "profiler_stop", ""))
            self.function_events = events_from(rows, device_rows, **options)
        return False

    def _events(self):
        if self.function_events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self.function_events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """The events of each name added up."""
        return self._events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def table(self, sort_by=None, row_limit=100, **options):
        """The events as text."""
        return self._events().table(sort_by, row_limit, **options)

    def total_average(self):
        """All events added up."""
        return self._events().total_average()

    @property
    def self_cpu_time_total(self):
        """Microseconds in all."""
        return self._events().self_cpu_time_total

    @property
    def self_device_time_total(self):
        """Microseconds that GPUs worked."""
        return self._events().self_device_time_total

    def export_chrome_trace(self, path, metadata=None):
        """Write the events for chrome://tracing and Perfetto."""
        self._events().export_chrome_trace(path, metadata)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write stacks with their time, as flame graph tools read them."""
        self._events().export_stacks(path, metric)

    def __repr__(self):
        return "<unfinished profiler>" if self.function_events is None else repr(self.function_events)

    def __str__(self):
        return "<unfinished profiler>" if self.function_events is None else str(self.function_events)


class emit_nvtx:
    """Mark the operations that run in a with block for NVIDIA's profilers, with their shapes if so told."""

    def __init__(self, enabled=True, record_shapes=False):
        self.enabled = enabled
        self.record_shapes = record_shapes
        self._entered = False
        self._mode = None

    def __enter__(self):
        if not self.enabled:
            return self
        if self._entered:
            raise RuntimeError("NVTX annotation context manager is not reentrant")
        from mica.cuda import nvtx

        if not nvtx._load():
            raise RuntimeError(
                "NVTX functions not installed. Are you sure you have a CUDA build? torch.profiler records what runs"
            )
        self._entered = True
        self._mode = _ranges_mode(nvtx, self.record_shapes)
        self._mode.__enter__()
        return self

    def __exit__(self, *exception):
        if self._mode is not None:
            self._mode.__exit__(*exception)
            self._mode = None
        return False


def _ranges_mode(nvtx, with_shapes):
    """A mode that puts a range around every operation."""
    from mica.utils._python_dispatch import TorchDispatchMode

    class Ranges(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = str(func)
            if with_shapes:
                shapes = [list(each.shape) for each in args if isinstance(each, _C.Tensor)]
                name += f", sizes = {shapes}"
            nvtx.range_push(name)
            try:
                return func(*args, **(kwargs or {}))
            finally:
                nvtx.range_pop()

    return Ranges()


class emit_itt:
    """Would mark operations for Intel's profilers in a with block: Mica does not use Intel's library."""

    def __init__(self, enabled=True, record_shapes=False):
        self.enabled = enabled

    def __enter__(self):
        if self.enabled:
            raise RuntimeError("ITT functions not installed. Are you sure you have a ITT build?")
        return self

    def __exit__(self, *exception):
        return False


class KinetoStepTracker:
    """Counts the steps of a program. Several requesters, such as an optimizer and a profiler, may count; the highest is
    taken."""

    _current_step = 0
    _step_dict: ClassVar[dict] = {}

    @classmethod
    def init_step_count(cls, requester):
        """Add a requester, which starts at the present count."""
        cls._step_dict[requester] = cls._current_step

    @classmethod
    def erase_step_count(cls, requester):
        """Remove a requester. Returns whether it was known."""
        return cls._step_dict.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester):
        """Count a step of a requester. Returns the count of all."""
        if requester not in cls._step_dict:
            cls.init_step_count(requester)
        cls._step_dict[requester] += 1
        cls._current_step = max(cls._current_step, *cls._step_dict.values())
        return cls._current_step

    @classmethod
    def current_step(cls):
        """The count of all."""
        return cls._current_step


class EnforceUnique:
    """Raises an error when a key is seen twice."""

    def __init__(self):
        self.seen = set()

    def see(self, *key):
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


def __getattr__(name):
    if name in ("EventList", "FunctionEvent", "FunctionEventAvg", "Kernel"):
        from mica.autograd import profiler_util

        return getattr(profiler_util, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
