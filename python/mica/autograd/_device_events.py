"""What GPUs ran while somebody profiled: kernels, copies and fills, linked with the operations that queued them."""

from mica.autograd._profile_times import DeviceType, Interval, Kernel, _Times


class DeviceEvent(_Times):
    """One kernel, copy or fill. Times are in microseconds on the line of the CPU's events."""

    count = 1
    use_device = "cuda"
    device_type = DeviceType.CUDA
    cpu_time_total = self_cpu_time_total = 0
    cpu_memory_usage = self_cpu_memory_usage = 0
    cpu_parent, cpu_children, kernels = None, (), ()
    input_shapes, input_dtypes, result_shapes, stack = (), (), (), ()
    sequence_nr, flops, is_user_annotation = -1, 0, False

    def __init__(self, number, row, origin_ns):
        (
            self.kind, name, start, end, self.device_index, self.device_resource_id, self.correlation, self._launch_start,
            self._launch_end, self.thread, self.nbytes, self.grid, self.block, self.registers, self.shared_memory,
            self.launched_by,
        ) = row  # fmt: skip
        self.id = number
        self.name = self.key = self.trace_name = name
        self.time_range = Interval((start - origin_ns) / 1000, (end - origin_ns) / 1000)
        self.launch_range = Interval((self._launch_start - origin_ns) / 1000, (self._launch_end - origin_ns) / 1000)
        self.operation = None  # the event of the CPU that queued it

    @property
    def device_time_total(self):
        return self.time_range.elapsed_us()

    self_device_time_total = device_time_total

    def trace(self, process):
        """The event for a Chrome trace, the call that launched it, and an arrow between them."""
        arguments = {"device": self.device_index, "stream": self.device_resource_id, "correlation": self.correlation}
        if self.operation is not None:
            arguments["External id"] = self.operation.id
        if self.kind == "kernel":
            arguments |= {"grid": self.grid, "block": self.block, "registers per thread": self.registers}
            arguments["shared memory"] = self.shared_memory
        else:
            arguments["bytes"] = self.nbytes
            if self.device_time_total > 0:
                arguments["memory bandwidth (GB/s)"] = self.nbytes / self.device_time_total / 1000
        here = {"pid": self.device_index, "tid": self.device_resource_id, "ts": self.time_range.start}
        yield {"ph": "X", "cat": self.kind, "name": self.name, "dur": self.device_time_total, "args": arguments} | here
        if not self._launch_start:
            return
        there = {"pid": process, "tid": self.thread, "ts": self.launch_range.start}
        call = {"ph": "X", "cat": "cuda_runtime", "name": self.launched_by, "dur": self.launch_range.elapsed_us()}
        yield call | there | {"args": {"correlation": self.correlation}}
        flow = {"cat": "ac2g", "name": "ac2g", "id": self.correlation}
        yield flow | there | {"ph": "s"}
        yield flow | here | {"ph": "f", "bp": "e"}

    def __repr__(self):
        return (
            f"<FunctionEvent id={self.id} name={self.name} device_type=CUDA device_time={self.device_time_str} "
            f"start={self.time_range.start:.3f}us stream={self.device_resource_id}>"
        )


def events_of_devices(rows, operations, origin_ns):
    """Events of what the backend recorded, in the order in which they were queued. The operation that queued one is the
    innermost that its thread ran at that time."""
    found = [DeviceEvent(len(operations) + i, row, origin_ns) for i, row in enumerate(sorted(rows, key=lambda r: r[7]))]
    threads = {}
    for operation in operations:  # in the order in which they began
        threads.setdefault(operation.thread, []).append(operation)
    positions = {thread: (iter(events), []) for thread, events in threads.items()}
    upcoming = {thread: next(events, None) for thread, (events, _) in positions.items()}
    for event in found:
        if event.thread not in positions or not event._launch_start:
            continue
        later, running = positions[event.thread]
        time = event.launch_range.start
        while (begins := upcoming[event.thread]) is not None and begins.time_range.start <= time:
            running.append(begins)
            upcoming[event.thread] = next(later, None)
        while running and running[-1].time_range.end < time:
            running.pop()
        if running:
            event.operation = running[-1]
            running[-1].kernels.append(Kernel(event.name, event.device_index, event.device_time_total))
    return found
