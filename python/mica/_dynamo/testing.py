"""Backends that count and keep the graphs they are handed."""

from mica._dynamo._comparison import same

__all__ = ["AotEagerAndRecordGraphs", "CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs", "same"]


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
    """A backend that hands graphs to another one, counts them and keeps them."""

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


class AotEagerAndRecordGraphs:
    """A backend that keeps its graphs, and those of aten's operators that AOT autograd makes of them, and runs them as they are."""

    def __init__(self):
        self.graphs, self.fw_graphs, self.bw_graphs = [], [], []

    def __call__(self, gm, example_inputs):
        from mica._dynamo.backends.debugging import aot_eager

        def keeper(graphs):
            def compiler(graph, inputs):
                graphs.append(graph)
                return graph.forward

            return compiler

        self.graphs.append(gm)
        return aot_eager(gm, example_inputs, fw_compiler=keeper(self.fw_graphs), bw_compiler=keeper(self.bw_graphs))
