"""Operators that a graph of make_fx has as they are called, although Python computes them by others."""

import contextlib
import sys

import mica

__all__ = ["OF_LENGTHS", "current_trace"]


def current_trace():
    """The trace of make_fx that records calls here; None if there is none."""
    tracing = sys.modules.get("mica.fx.experimental.proxy_tensor")
    trace = None if tracing is None else tracing.get_proxy_mode()
    return trace if trace is not None and trace.enable_tracing and not trace.is_within else None


def _with_lengths(name, first):
    """An operator of ctc_loss whose lengths, from the argument `first` on, are tensors. A graph has it as it is called."""

    def call(*args, **kwargs):
        operator, trace = getattr(mica.ops.aten, name), current_trace()
        with contextlib.nullcontext() if trace is None else trace.within_operator():
            lengths = [each.tolist() for each in args[first : first + 2]]
            made = operator.default(*args[:first], *lengths, *args[first + 2 :], **kwargs)
        if trace is not None:
            trace.record_call(operator.Tensor, args, made, name)
        return made

    return call


OF_LENGTHS = {
    "_ctc_loss.Tensor": _with_lengths("_ctc_loss", 2),
    "_ctc_loss_backward.Tensor": _with_lengths("_ctc_loss_backward", 3),
}
