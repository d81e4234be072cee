"""Backends that count and keep the graphs they are handed."""

import mica

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs", "same"]


class CompileCounter:
    """A backend that runs graphs as they are, and counts them and their calls."""

    def __init__(self):
        self.frame_count, self.op_count = 0, 0

    def __call__(self, gm, example_inputs):
        self._count(gm)
        return gm.forward

    def _count(self, gm):
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)

    def clear(self):
        self.frame_count, self.op_count = 0, 0


class CompileCounterWithBackend(CompileCounter):
    """The same around another backend; keeps the graphs."""

    def __init__(self, backend):
        super().__init__()
        self.backend, self.graphs = backend, []

    def __call__(self, gm, example_inputs):
        from mica._dynamo import lookup_backend

        self._count(gm)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self):
        super().clear()
        self.graphs = []


class EagerAndRecordGraphs:
    """A backend that runs graphs as they are, and keeps them."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward


def same(a, b, tol=1e-4, equal_nan=False, **options):
    """Whether two nests of values are alike."""
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(
            same(x, y, tol, equal_nan) for x, y in zip(a, b, strict=True))  # fmt: skip
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k], tol, equal_nan) for k in a)
    if isinstance(a, mica.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and mica.allclose(a, b, tol, tol, equal_nan)
    return a == b
