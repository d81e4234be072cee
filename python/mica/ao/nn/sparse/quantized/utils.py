"""The blocks of zeros that a program expects in weights."""

import contextvars

__all__ = ["LinearBlockSparsePattern"]

_SIZES = ((1, 4), (8, 1))
_current = contextvars.ContextVar("blocks of sparse linear maps", default=(1, 4))


class LinearBlockSparsePattern:
    """The rows and columns of a block of weights, for the layers that this thread makes within `with`."""

    def __init__(self, row_block_size=1, col_block_size=4):
        if (row_block_size, col_block_size) not in _SIZES:
            raise AssertionError(f"Invalid linear block sparse pattern: {row_block_size=}, {col_block_size=}")
        self._given, self._before = (row_block_size, col_block_size), []

    def __enter__(self):
        self._before.append(_current.set(self._given))

    def __exit__(self, kind, error, trace):
        _current.reset(self._before.pop())

    @staticmethod
    def block_size():
        """The rows and columns of a block."""
        return _current.get()
