"""`mica.lab.watch(model)`: a running program shows itself in the Lab."""

import json
import time
from collections import Counter

from mica import _C, _lab
from mica.inspect import _places
from mica.inspect._copies import Copy, copies
from mica.inspect._memory import KINDS, memory

_LONGEST = 600  # moments of the timeline that are kept


def _by_source_line(rows):
    """One row for a line of the source, whatever operations of it hold memory."""
    lines = {}
    for row in rows:
        if row["line"] in lines:
            lines[row["line"]]["bytes"] += row["bytes"]
        else:
            lines[row["line"]] = dict(row)
    return sorted(lines.values(), key=lambda row: -row["bytes"])


class Watch:
    """What a program does while it runs, published to the page at every few calls of the model. `stop()` ends it."""

    def __init__(self, server, model, every):
        self.server, self.url, self._every = server, server.url, every
        self._began = self._published = time.monotonic()
        self._step, self._peak, self._at_peak = 0, 0, dict.fromkeys(KINDS, 0)
        self._moments, self._copies, self._lines = [], {}, []
        self._state, self._stopped = "running", False
        _C._memory_start()
        _C._copies_start(False, False, 1)
        _C._operations_start()
        before = memory()
        before._take(_C._memory_so_far())
        self._made, self._before = Counter(), self._held(before)
        if model is None:
            # A step is a step of an optimizer; every call of a module is a moment to publish.
            from mica.nn.modules.module import register_module_forward_hook
            from mica.optim.optimizer import register_optimizer_step_post_hook

            self._hooks = [
                register_module_forward_hook(lambda *_: self._tick()),
                register_optimizer_step_post_hook(lambda *_: self._tick(step=True)),
            ]
        else:
            self._hooks = [model.register_forward_hook(lambda *_: self._tick(step=True))]
        self._publish()

    def _tick(self, step=False):
        self._step += step
        if time.monotonic() - self._published >= self._every:
            self._publish()

    def _held(self, record):
        """How many blocks each line holds, of those that a program may forget."""
        kinds = ("other", "activations", "temporaries")
        return Counter(
            (b.place, b.operation, b.bytes) for b in record.blocks if b.alive and b.place and b.kind in kinds
        )

    def _leaks(self, record):
        """Lines that have made more and more blocks which live on."""
        self._made.update((b.place, b.operation, b.bytes) for b in record.blocks if not b.before and b.place)
        found = []
        for key, held in self._held(record).items():
            held -= self._before[key]
            if held > 2 and held >= self._made[key] / 2:
                place, _, size = key
                found.append(
                    {"line": _places.shown(place), "code": _places.code(place), "blocks": held, "bytes": held * size}
                )
        return sorted(found, key=lambda row: -row["bytes"])[:8]

    def _publish(self):
        from mica.inspect._memory import mark_what_is_known

        mark_what_is_known()
        record = memory()
        record._take(_C._memory_next())
        end = time.monotonic() - self._began
        span = (record._ended - record._started) / 1e9
        if record.peak() > self._peak:
            self._peak, self._at_peak, self._lines = (
                record.peak(),
                record.at_peak(),
                _by_source_line(record.by_line())[:12],
            )
        self._moments += [(max(0.0, end - span + when), held) for when, held in record.timeline(points=60)]
        if len(self._moments) > _LONGEST:
            self._moments = self._moments[::2]
        log = copies()
        log.copies = [Copy(facts) for facts in _C._copies_stop()]
        _C._copies_start(False, False, 1)
        for row in log.by_line():
            kept = self._copies.setdefault((row["line"], row["reason"]), {**row, "copies": 0, "bytes": 0})
            kept["copies"] += row["copies"]
            kept["bytes"] += row["bytes"]
        slowest = {}
        for _, place, calls, nanoseconds in _C._operations_so_far():
            line = _places.shown(place)
            row = slowest.setdefault(line, {"line": line, "code": _places.code(place), "calls": 0, "seconds": 0.0})
            row["calls"] += calls
            row["seconds"] += nanoseconds / 1e9
        _lab.publish(
            json.dumps(
                {
                    "state": self._state,
                    "step": self._step,
                    "peak": self._peak,
                    "at_peak": self._at_peak,
                    "timeline": self._moments,
                    "lines": self._lines,
                    "copies": sorted(self._copies.values(), key=lambda row: -row["bytes"])[:12],
                    "leaks": self._leaks(record),
                    "slowest": sorted(slowest.values(), key=lambda row: -row["seconds"])[:12],
                }
            )
        )
        self._published = time.monotonic()

    def stop(self):
        """Publish the last state; the page stays as long as the program."""
        if self._stopped:
            return
        self._stopped, self._state = True, "ended"
        for hook in self._hooks:
            hook.remove()
        self._publish()
        _C._copies_stop()
        _C._operations_stop()
        _C._memory_stop()

    def close(self):
        """Stop, and end the server."""
        self.stop()
        self.server.stop()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
