"""Work of the accelerator that is recorded once and queued again as a whole."""

from mica.accelerator import _present, synchronize
from mica.accelerator.memory import empty_cache

__all__ = ["Graph"]


class Graph:
    """A recording of the work that is queued on the current stream, in a with block or from capture_begin to capture_end.

    Graphs are there where the accelerator is a GPU of CUDA. As in torch, one does not capture on the default stream.
    """

    def __init__(self, keep_graph=False, *, pool=None, capture_error_mode="default"):
        device = _present()
        if capture_error_mode not in ("default", "global", "thread_local", "relaxed"):
            raise ValueError(f"Unknown capture error mode {capture_error_mode!r}")
        if device.type != "cuda":
            raise RuntimeError(f"the backend of {device.type} records no graphs")
        from mica.cuda.graphs import CUDAGraph

        self._graph = CUDAGraph(keep_graph)
        self.graph_pool = pool
        self.capture_error_mode = capture_error_mode

    def capture_begin(self):
        """Record what is queued on the current stream from now on, instead of running it."""
        mode = "global" if self.capture_error_mode == "default" else self.capture_error_mode
        self._graph.capture_begin(*(() if self.graph_pool is None else (self.graph_pool,)), capture_error_mode=mode)

    def capture_end(self):
        """Stop recording; the graph can be replayed."""
        self._graph.capture_end()

    def replay(self):
        """Queue the recorded work on the current stream."""
        self._graph.replay()

    def reset(self):
        """Forget the recorded work and give its memory back."""
        self._graph.reset()

    def pool(self):
        """The name of the graph's memory."""
        return self._graph.pool()

    def __enter__(self):
        synchronize()
        empty_cache()
        self.capture_begin()

    def __exit__(self, *exception):
        self.capture_end()
