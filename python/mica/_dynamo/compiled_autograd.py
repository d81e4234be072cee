"""torch's switch for graphs of backward passes.

Here a pass that belongs to a compiled function is compiled where it runs, kernel by kernel (docs/compiler_kernels.md), and no
compiler is handed a graph of it: the switch is kept, and passes compute what they compute without it.
"""

import contextlib

compiled_autograd_enabled = False


@contextlib.contextmanager
def _switched(on):
    global compiled_autograd_enabled
    before, compiled_autograd_enabled = compiled_autograd_enabled, on
    try:
        yield
    finally:
        compiled_autograd_enabled = before


def _enable(compiler_fn, dynamic=True, ignore_active_disable_ctx=True):
    """A block in which backward passes run as they do outside: `compiler_fn` gets no graphs of them."""
    if not callable(compiler_fn):
        raise TypeError(f"compiled_autograd._enable takes a compiler, not {type(compiler_fn).__name__}")
    return _switched(True)


def _disable():
    """A block in which compiled_autograd_enabled is false."""
    return _switched(False)


def reset():
    """Switch it off."""
    global compiled_autograd_enabled
    compiled_autograd_enabled = False
