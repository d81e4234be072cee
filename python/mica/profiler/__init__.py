"""Where a program's time and memory go: tables by operation, traces for a browser, schedules for long runs."""

import os
import socket
import time
import warnings
from enum import Enum

from mica import _C
from mica.autograd.profiler import KinetoStepTracker, record_function
from mica.autograd.profiler import profile as _recording

__all__ = [
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(Enum):
    """What can be recorded."""

    CPU = 0
    XPU = 1
    CUDA = 2


class ProfilerAction(Enum):
    """What a profiler does during a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities():
    """Activities that are recorded here: those of GPUs where there is one, and CUPTI to watch it."""
    if _C._device_count("cuda") and not _C._backend_query("cuda", "profiler_missing", ""):
        return {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    return {ProfilerActivity.CPU}


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """Which steps a profiler records: it skips `skip_first` steps, then waits, warms up and records in cycles.

    Args:
        wait, warmup, active: how many steps of a cycle are left out, watched without a record, and recorded
        repeat: how many cycles there are; 0 goes on to the end
        skip_first: how many steps come before the first cycle
        skip_first_wait: whether the first cycle does not wait

    Example::

        with profile(schedule=schedule(wait=1, warmup=1, active=3)) as p:
            for batch in loader:
                train(batch)
                p.step()
    """
    if active <= 0 or min(wait, warmup, repeat, skip_first) < 0:
        raise AssertionError("Invalid profiler schedule arguments")
    cycle = wait + warmup + active

    def action(step):
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat > 0 and step // cycle >= repeat:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """A handler for on_trace_ready that writes each trace into a folder, by worker and time."""

    def write(profiler):
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        profiler.export_chrome_trace(os.path.join(dir_name, name))

    return write


class profile:
    """Records what runs in a `with` block, or between start() and stop(); with a schedule, only some steps of it.

    Args:
        activities: what to record: ProfilerActivity.CPU, CUDA, or both
        schedule: a function of the step's number, as `schedule()` makes one; call `step()` after each step
        on_trace_ready: is called with the profiler whenever a recording ends
        record_shapes: whether events have the shapes of their inputs
        profile_memory: whether events have the memory that they took and gave back
        with_stack: whether events have the lines of the program
        with_flops: whether events of products and convolutions have their number of operations

    Example::

        with torch.profiler.profile(record_shapes=True) as p:
            model(x).sum().backward()
        print(p.key_averages().table(sort_by="self_cpu_time_total"))

    Operations are seen as they are, so that `with_modules`, which is for TorchScript, changes nothing. Events are there
    when a recording ends, and `post_processing_timeout_s` has nothing to limit.
    """

    def __init__(
        self,
        *,
        activities=None,
        schedule=None,
        on_trace_ready=None,
        record_shapes=False,
        profile_memory=False,
        with_stack=False,
        with_flops=False,
        with_modules=False,
        experimental_config=None,
        execution_trace_observer=None,
        acc_events=False,
        use_cuda=None,
        custom_trace_id_callback=None,
        post_processing_timeout_s=None,
    ):
        if experimental_config is not None:
            raise NotImplementedError("profile: experimental_config= is about torch's profiler")
        self.execution_trace_observer = execution_trace_observer
        self.activities = set(activities) if activities else supported_activities()
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        if use_cuda is not None:
            warnings.warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=2)
            self.activities = self.activities - {ProfilerActivity.CUDA}
            if use_cuda and _C._device_count("cuda"):
                self.activities.add(ProfilerActivity.CUDA)
        self.use_device = "cuda" if ProfilerActivity.CUDA in self.activities else None
        self.schedule = schedule if schedule is not None else (lambda step: ProfilerAction.RECORD)
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.profiler = None  # the recording that runs, or the last one
        self._running = False
        self._step = None
        self._acc_events = acc_events
        self._earlier = []  # events of cycles before, where they are accumulated
        self._metadata = {}
        self.custom_trace_id_callback = custom_trace_id_callback
        self._trace_id = None

    # ---- life
    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def start(self):
        """Begin with step 0."""
        self._change(ProfilerAction.NONE, self.current_action)
        self._open_step()

    def stop(self):
        """End the recording, and call the handler with what was recorded last, if anything."""
        self._close_step()
        self._change(self.current_action, None)

    def step(self):
        """Tell that the next step of the program begins."""
        self._close_step()
        before = self.current_action
        self.step_num += 1
        KinetoStepTracker.increment_step("ProfilerStep")
        self.current_action = self.schedule(self.step_num)
        self._change(before, self.current_action)
        self._open_step()

    def _open_step(self):
        if self.record_steps and self._running:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _close_step(self):
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def _change(self, before, after):
        """Start or end the recording as the schedule goes from one action to another; None is the end of all."""
        records = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if self._running and (after not in records or before is ProfilerAction.RECORD_AND_SAVE):
            if self.execution_trace_observer is not None:
                self.execution_trace_observer.stop()
            self.profiler.__exit__(None, None, None)
            self._running = False
            if self._acc_events:
                events = self.profiler.function_events
                self._earlier += events
                self.profiler.function_events = events._like(self._earlier)
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        if after in records and not self._running:
            self.profiler = _recording(
                use_cpu=ProfilerActivity.CPU in self.activities,
                use_device=self.use_device,
                record_shapes=self.record_shapes,
                profile_memory=self.profile_memory,
                with_stack=self.with_stack,
                with_flops=self.with_flops,
            )
            if self.custom_trace_id_callback is not None:
                self._trace_id = self.custom_trace_id_callback()
            self.profiler.__enter__()
            self._running = True
            if self.execution_trace_observer is not None:
                self.execution_trace_observer.start()

    # ---- results
    def _finished(self):
        if self.profiler is None or self.profiler.function_events is None:
            raise AssertionError("Profiler must be initialized before exporting: nothing has been recorded yet")
        return self.profiler

    def events(self):
        """Every event, in the order in which they began."""
        return self._finished().function_events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """The events of each name added up."""
        return self._finished().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path):
        """Write the events for chrome://tracing and Perfetto."""
        metadata = dict(self._metadata)
        if self._trace_id is not None:
            metadata["trace_id"] = self._trace_id
        self._finished().export_chrome_trace(path, metadata)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write stacks with their time, as flame graph tools read them."""
        self._finished().export_stacks(path, metric)

    # ---- what is written along
    def add_metadata(self, key, value):
        """Write a text of one's own into the trace."""
        self._metadata[key] = str(value)

    def add_metadata_json(self, key, value):
        """Write a value of the program's own, given as JSON, into the trace."""
        import json

        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def set_custom_trace_id_callback(self, callback):
        """Let a function name each trace as its recording begins."""
        self.custom_trace_id_callback = callback

    def get_trace_id(self):
        """The name of the trace that is or was recorded last; None without a function that gives names."""
        return self._trace_id


def kineto_available():
    """True: what runs can be recorded."""
    return True


def __getattr__(name):
    if name == "profiler":
        import importlib

        return importlib.import_module("mica.profiler.profiler")
    if name == "itt":
        import importlib

        return importlib.import_module("mica.profiler.itt")
    if name == "ExecutionTraceObserver":
        from mica.profiler.execution_trace import ExecutionTraceObserver

        return ExecutionTraceObserver
    if name == "DeviceType":
        from mica.autograd._profile_times import DeviceType

        return DeviceType
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
