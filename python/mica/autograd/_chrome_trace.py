"""Events as chrome://tracing and Perfetto read them."""

import gzip
import json
import os

from mica.autograd._profile_times import DeviceType


def write_trace(events, path, with_memory=False, metadata=None):
    """Write a file of events, with the program's own metadata. The file is gzipped where its name ends in .gz."""
    process = os.getpid()
    trace = [{"ph": "M", "name": "process_name", "pid": process, "tid": 0, "ts": 0, "args": {"name": "python"}}]
    category = {"operation": "cpu_op", "node": "cpu_op", "range": "user_annotation"}
    for event in events:
        if event.device_type != DeviceType.CPU:
            trace += event.trace(process)
            continue
        arguments = {"External id": event.id}
        if event.sequence_nr >= 0:
            arguments["Sequence number"] = event.sequence_nr
        if event.input_shapes:
            arguments["Input Dims"] = event.input_shapes
            arguments["Input type"] = [str(dtype) for dtype in event.input_dtypes]
        if with_memory:
            arguments["Bytes"] = event.cpu_memory_usage
        if event.stack:
            arguments["Call stack"] = ";".join(reversed(event.stack))
        trace.append(
            {
                "ph": "X",
                "cat": category[event.kind],
                "name": event.name,
                "pid": process,
                "tid": event.thread,
                "ts": event.time_range.start,
                "dur": event.cpu_time_total,
                "args": arguments,
            }
        )
    trace += _forward_to_backward(events, process)
    text = json.dumps({**(metadata or {}), "schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": trace})
    if str(path).endswith(".gz"):
        with gzip.open(path, "wt") as file:
            file.write(text)
    else:
        with open(path, "w") as file:
            file.write(text)


def _forward_to_backward(events, process):
    """Arrows from an operation to the node that differentiated it."""
    forward = {e.sequence_nr: e for e in events if e.kind == "operation" and e.sequence_nr >= 0}
    for node in (e for e in events if e.kind == "node" and e.sequence_nr in forward):
        source = forward[node.sequence_nr]
        flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": node.id, "pid": process}
        yield flow | {"ph": "s", "tid": source.thread, "ts": source.time_range.start}
        yield flow | {"ph": "f", "bp": "e", "tid": node.thread, "ts": node.time_range.start}
