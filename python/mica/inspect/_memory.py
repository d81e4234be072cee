"""`inspect.memory()`: what a program holds, by the line that made it, and what its peak was made of."""

import gc
import sys

from mica import _C
from mica.inspect import _places
from mica.inspect._memory_kinds import KINDS
from mica.inspect._terminal import readable_bytes, table

_PARAMETER, _BUFFER, _GRADIENT, _STATE = 0, 1, 2, 3


# As the engine lists them.
_FIELDS = (
    "address", "bytes", "device", "place", "operation", "in_backward", "before", "kind", "born", "died", "born_ns",
    "died_ns",
)  # fmt: skip


class Block:
    """A piece of memory: bytes, device, the line and operation that made it, its kind, when it was born and died."""

    __slots__ = _FIELDS

    def __init__(self, facts):
        for name, value in zip(_FIELDS, facts, strict=True):
            setattr(self, name, value)
        self.kind = KINDS[self.kind]

    @property
    def line(self):
        """The program's line, as file:line."""
        return _places.shown(self.place) if self.place or not self.before else "(before the recording)"

    @property
    def alive(self):
        """Whether the block was held when the recording ended."""
        return self.died < 0

    def to_dict(self):
        """Everything as plain values."""
        return {name: getattr(self, name) for name in _FIELDS} | {"line": self.line}

    def __repr__(self):
        return f"{readable_bytes(self.bytes)} of {self.kind} from {self.line}"


def mark_what_is_known():
    """Tell the engine which memory is parameters, buffers, gradients and states: what modules and optimizers hold."""
    nn, optim = sys.modules.get("mica.nn.modules.module"), sys.modules.get("mica.optim.optimizer")
    for thing in gc.get_objects():
        kind = type(thing)
        if nn is not None and issubclass(kind, nn.Module):
            for parameter in (thing.__dict__.get("_parameters") or {}).values():
                if parameter is not None:
                    _C._memory_mark(parameter, _PARAMETER)
                    if parameter.grad is not None:
                        _C._memory_mark(parameter.grad, _GRADIENT)
            for buffer in (thing.__dict__.get("_buffers") or {}).values():
                if buffer is not None:
                    _C._memory_mark(buffer, _BUFFER)
        elif optim is not None and issubclass(kind, optim.Optimizer):
            for state in list(getattr(thing, "state", {}).values()):
                # By types: isinstance would ask an object for its `__class__`, which may be a stranger's code.
                for value in state.values() if issubclass(type(state), dict) else ():
                    if issubclass(type(value), _C.Tensor):
                        _C._memory_mark(value, _STATE)


class memory:
    """Records the memory of the program in a `with` block: live, peak, and what the peak was made of.

    After the block, or within it after `update()`: `.peak`, `.live`, `.at_peak()`, `.by_line()`, `.timeline()`, `.table()`,
    `.plot()`, `.save("m.html")`, `.snapshot()`.
    """

    def __init__(self):
        self.blocks, self.events, self._started, self._ended = [], 0, 0, 0
        self._reserved = {}
        self._at_peak = {}

    def __enter__(self):
        _C._memory_start()
        mark_what_is_known()
        return self

    def __exit__(self, *exception):
        mark_what_is_known()
        self._take(_C._memory_stop())

    def update(self):
        """Include what has happened so far, within the block."""
        mark_what_is_known()
        self._take(_C._memory_so_far())
        return self

    def _take(self, record):
        blocks, self.events, self._started, self._ended = record
        self.blocks = [Block(facts) for facts in blocks]
        self._reserved = {"cpu": _C._cpu_memory_stats()[:2]}
        for device in {block.device for block in self.blocks if block.device.startswith("cuda")}:
            from mica import cuda

            self._reserved[device] = (cuda.memory_allocated(device), cuda.memory_reserved(device))
        self._at_peak = {}

    # ---- numbers
    def devices(self):
        """Devices that memory was held on."""
        return sorted({block.device for block in self.blocks})

    def _of(self, device):
        return [b for b in self.blocks if device is None or b.device == device or b.device.split(":")[0] == device]

    def _changes(self, device=None):
        """(event, bytes more or less), in order; what was there before comes first."""
        changes = []
        for block in self._of(device):
            changes.append((-1 if block.before else block.born, block.bytes))
            if block.died >= 0:
                changes.append((block.died, -block.bytes))
        return sorted(changes, key=lambda change: change[0])

    def _peak(self, device=None):
        if device not in self._at_peak:
            held = most = 0
            when = -1
            for event, amount in self._changes(device):
                held += amount
                if held > most:
                    most, when = held, event
            self._at_peak[device] = (most, when)
        return self._at_peak[device]

    def peak(self, device=None):
        """The most bytes that were held at a time."""
        return self._peak(device)[0]

    def live(self, device=None):
        """Bytes that are held at the end."""
        return sum(block.bytes for block in self._of(device) if block.alive)

    def blocks_at_peak(self, device=None):
        """The blocks that made up the peak."""
        when = self._peak(device)[1]
        return [b for b in self._of(device) if (b.before or b.born <= when) and (b.alive or b.died > when)]

    def at_peak(self, device=None):
        """Bytes of each kind at the peak."""
        kinds = dict.fromkeys(KINDS, 0)
        for block in self.blocks_at_peak(device):
            kinds[block.kind] += block.bytes
        return kinds

    def by_line(self, when="peak", device=None):
        """Bytes and blocks of each line, the largest first: at the "peak", at the "end", or of "all" allocations."""
        chosen = {
            "peak": lambda: self.blocks_at_peak(device),
            "end": lambda: [b for b in self._of(device) if b.alive],
            "all": lambda: self._of(device),
        }
        if when not in chosen:
            raise ValueError(f'by_line(): when is "peak", "end" or "all", not {when!r}')
        lines = {}
        for block in chosen[when]():
            row = lines.setdefault(
                (block.line, block.kind),
                {"line": block.line, "code": _places.code(block.place), "kind": block.kind, "blocks": 0, "bytes": 0},
            )
            row["blocks"] += 1
            row["bytes"] += block.bytes
        return sorted(lines.values(), key=lambda row: -row["bytes"])

    def timeline(self, points=400, device=None):
        """The held bytes over time, by kind: a list of (seconds, {kind: bytes}), at most `points` long."""
        changes = []
        for block in self._of(device):
            changes.append((self._started if block.before else block.born_ns, block.kind, block.bytes))
            if block.died >= 0:
                changes.append((block.died_ns, block.kind, -block.bytes))
        changes.sort(key=lambda change: change[0])
        held, series = dict.fromkeys(KINDS, 0), []
        for when, kind, amount in changes:
            held[kind] += amount
            series.append(((when - self._started) / 1e9, dict(held)))
        if len(series) <= points:
            return series
        # The largest moment of each stretch stands for it, so that no peak is lost.
        stretch = -(-len(series) // points)
        parts = [series[i : i + stretch] for i in range(0, len(series), stretch)]
        return [max(part, key=lambda moment: sum(moment[1].values())) for part in parts]

    def leaks(self, least=2):
        """Lines that made several blocks which all live on, and more of them as time went by."""
        lines = {}
        for block in self.blocks:
            if not block.before and block.place:
                lines.setdefault((block.line, block.operation, block.bytes), []).append(block)
        found = []
        for (line, _, _), blocks in lines.items():
            living = [b for b in blocks if b.alive and b.kind in ("other", "activations", "temporaries")]
            if len(living) > least and len(living) >= len(blocks) / 2 and living[-1].born - living[0].born > 0:
                found.append(
                    {"line": line, "code": _places.code(living[0].place), "blocks": len(living),
                     "bytes": sum(b.bytes for b in living)}
                )  # fmt: skip
        return sorted(found, key=lambda row: -row["bytes"])

    def fragmentation(self, device="cpu"):
        """Of the memory taken from the system or the GPU, the part that no tensor uses: between 0 and 1."""
        device = f"{device}:0" if device == "cuda" else str(device)
        allocated, reserved = self._reserved.get(device, (0, 0))
        return max(0.0, 1 - allocated / reserved) if reserved else 0.0

    # ---- shown
    def table(self, row_limit=20, when="peak"):
        """The lines that hold most, as text."""
        most = self.peak()
        rows = [
            (r["line"], r["kind"], r["blocks"], readable_bytes(r["bytes"]), f"{100 * r['bytes'] / (most or 1):.1f} %",
             r["code"])
            for r in self.by_line(when)[:row_limit]
        ]  # fmt: skip
        kinds = ", ".join(f"{kind} {readable_bytes(amount)}" for kind, amount in self.at_peak().items() if amount)
        head = f"peak {readable_bytes(most)} ({kinds}); {readable_bytes(self.live())} held at the end"
        return head + "\n\n" + table(("line", "kind", "blocks", "bytes", "share", "code"), rows, "<<>>><")

    def __str__(self):
        return self.table()

    __repr__ = __str__

    def to_dict(self):
        """Everything as plain values."""
        return {
            "peak": self.peak(),
            "live": self.live(),
            "at_peak": self.at_peak(),
            "lines": self.by_line("peak"),
            "lines_at_end": self.by_line("end"),
            "leaks": self.leaks(),
            "timeline": self.timeline(),
            "fragmentation": self.fragmentation(),
        }

    def plot(self, axes=None):
        """The timeline as a matplotlib stack plot; returns the axes."""
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise ImportError(
                "plot() draws with matplotlib, which is not installed: pip install matplotlib, or save('m.html')"
            ) from None
        axes = plt.subplots()[1] if axes is None else axes
        series = self.timeline()
        times = [when for when, _ in series]
        axes.stackplot(times, [[held[kind] / 2**20 for _, held in series] for kind in KINDS], labels=KINDS, step="post")
        axes.set(xlabel="seconds", ylabel="MiB", title=f"peak {readable_bytes(self.peak())}")
        axes.legend(loc="upper left")
        return axes

    def save(self, path):
        """Write one self-contained page with the timeline, a flame graph of the peak and the table of lines."""
        from mica.inspect._report import memory_page

        with open(path, "w", encoding="utf-8") as file:
            file.write(memory_page(self))

    def snapshot(self):
        """The recording as torch's memory snapshot: a dict to pickle for the viewers that people have."""
        from mica.inspect._snapshot import snapshot

        return snapshot(self)

    def save_snapshot(self, path):
        """Pickle `snapshot()` to a file."""
        import pickle

        with open(path, "wb") as file:
            pickle.dump(self.snapshot(), file)
