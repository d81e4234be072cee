"""Puts a stream where another one was: by taking that many samples again."""

from mica.utils.data.datapipes._hook_iterator import _SnapshotState
from mica.utils.data.graph_settings import apply_random_seed


def _simple_graph_snapshot_restoration(datapipe, n_iterations, rng=None):
    """Let the next iteration of the stream begin after n_iterations samples; rng is as it was at the start."""
    if datapipe._snapshot_state is _SnapshotState.Restored:
        raise RuntimeError(
            "Snapshot restoration cannot be applied. You can only restore simple snapshot to the graph if your graph "
            "has not been restored."
        )
    datapipe.reset()
    apply_random_seed(datapipe, rng)
    iterator = iter(datapipe)
    for _ in range(n_iterations):
        try:
            next(iterator)
        except StopIteration as end:
            raise RuntimeError(
                f"Fast-forward {datapipe} by {n_iterations} iterations exceeds the number of samples available."
            ) from end
    datapipe._fast_forward_iterator = iterator
    datapipe._snapshot_state = _SnapshotState.Restored
