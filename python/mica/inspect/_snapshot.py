"""A recording of memory in the form of torch.cuda.memory._snapshot(), which torch's viewers read."""

from mica.inspect import _places


def _frames(number):
    """Frames from the innermost outwards."""
    rows = []
    for at in reversed(_places.stack(number)):
        file, line, function, _ = _places.place(at)
        rows.append({"filename": file, "line": line, "name": function})
    return rows


def _microseconds(ns):
    return ns // 1000


def snapshot(record):
    """Segments and traces of every device; each block is a segment of its own."""
    devices = record.devices() or ["cpu"]
    segments, traces = [], []
    for number, device in enumerate(devices):
        events = []
        # Memory without an address (the meta device) gets one of its own.
        fresh = 1 << 20
        for block in record._of(device):
            address = block.address
            if not address:
                address, fresh = fresh, fresh + block.bytes + 512
            frames = _frames(block.place)
            common = {"addr": address, "size": block.bytes, "stream": 0, "frames": frames, "category": block.kind}
            events.append((block.born, {"action": "alloc", "time_us": _microseconds(block.born_ns), **common}))
            if block.died >= 0:
                freed = {**common, "time_us": _microseconds(block.died_ns)}
                events.append((block.died, {"action": "free_requested", **freed}))
                events.append((block.died, {"action": "free_completed", **freed}))
            else:
                segments.append(
                    {
                        "device": number, "address": address, "total_size": block.bytes, "allocated_size": block.bytes,
                        "active_size": block.bytes, "requested_size": block.bytes, "stream": 0, "segment_type": "large",
                        "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames,
                        "blocks": [
                            {"address": address, "size": block.bytes, "requested_size": block.bytes,
                             "state": "active_allocated", "frames": frames}
                        ],
                    }
                )  # fmt: skip
        events.sort(key=lambda event: event[0])
        traces.append([event for _, event in events])
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {"expandable_segments": False, "garbage_collection_threshold": 0.0},
        "devices": devices,
    }
