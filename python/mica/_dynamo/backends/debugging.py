"""Backends that run graphs as they are."""

import functools

from mica._dynamo.backends.common import aot_autograd
from mica._dynamo.explanation import ExplainOutput

__all__ = ["ExplainOutput", "aot_eager", "eager"]


def eager(gm, fake_tensor_inputs, **options):
    """Runs the graph of calls as it is."""
    return gm.forward


@functools.cache
def _aot():
    from mica._functorch.compilers import nop

    return aot_autograd(nop, nop)


def aot_eager(gm, fake_tensor_inputs, fw_compiler=None, bw_compiler=None, **options):
    """Runs the forward and the backward graph of aten's operators as they are, or hands each to a compiler."""
    if fw_compiler is None and bw_compiler is None:
        return _aot()(gm, fake_tensor_inputs)
    from mica._functorch.compilers import nop

    return aot_autograd(fw_compiler or nop, bw_compiler or nop)(gm, fake_tensor_inputs)
