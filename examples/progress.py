"""One line that shows how a training run goes."""

import resource
import sys
import time


class Progress:
    """A bar with the loss, the speed and the memory; on a terminal it redraws itself, elsewhere it prints a few lines."""

    def __init__(self, total, unit="step", per_step=1):
        self.total, self.unit, self.per_step = total, unit, per_step
        self.start = time.perf_counter()
        self.shown = 0.0
        self.live = sys.stdout.isatty()
        self.losses = []

    @property
    def seconds(self):
        return time.perf_counter() - self.start

    def update(self, done, loss, fraction=None):
        """Show that `done` steps of the total are done; `fraction` is the part of the run where steps are not its measure."""
        self.losses.append(loss)
        now = time.perf_counter()
        fraction = done / self.total if fraction is None else fraction
        every = 0.1 if self.live else 5.0
        if now - self.shown < every and fraction < 1:
            return
        self.shown = now
        filled = int(24 * min(fraction, 1))
        speed = done * self.per_step / max(self.seconds, 1e-9)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        line = f"{'█' * filled}{'░' * (24 - filled)} {done:5d}  loss {loss:7.4f}  {speed:9,.0f} {self.unit}s/s  {memory:5.0f} MB"
        print(("\r" if self.live else "") + line, end="" if self.live else "\n", flush=True)

    def close(self):
        if self.live:
            print()
