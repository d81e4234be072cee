"""Which recorder is at work while a program runs: that of make_fx, of torch.export or of torch._dynamo.export."""

import sys

__all__ = ["recorder"]


def recorder():
    """The recorder of the program that is being traced, or None."""
    tracing = sys.modules.get("mica.fx.experimental.proxy_tensor")
    mode = None if tracing is None else tracing.get_proxy_mode()
    if mode is not None and mode.enable_tracing:
        return mode
    recording = sys.modules.get("mica.export._record")
    if recording is not None and (current := recording.current()) is not None:
        return current
    whole = sys.modules.get("mica._dynamo._whole_graphs")
    return None if whole is None else whole.current()
