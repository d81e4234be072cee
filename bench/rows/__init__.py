"""The rows of workloads.py, by groups: a name, and a function that prepares the data and returns what is timed."""

from . import algebra, compiled, engine, kinds, networks


class Table(dict):
    """Rows by name for one library and device; `side` is that of the matrices that reductions and layouts work on."""

    def __init__(self, torch, device, big):
        super().__init__()
        self.torch, self.device, self.big = torch, device, big
        self.nn = getattr(torch, "nn", None)
        self.F = getattr(self.nn, "functional", None)
        self.place = {"device": device}
        self.side = 8192 if big else 2048

    def row(self, name):
        def keep(make):
            self[name] = make
            return make

        return keep

    def elementwise(self, name, n, fn, dtype=None, args=1):
        def make():
            xs = [self.torch.rand(n, **self.place) + 0.5 for _ in range(args)]
            if dtype is not None:
                xs = [x.to(getattr(self.torch, dtype)) for x in xs]
            return lambda: fn(*xs)

        self[name] = make


def rows(torch, device, big):
    table = Table(torch, device, big)
    for group in (engine, algebra, kinds, networks, compiled):
        group.add(table)
    return table
