"""Several epochs as one iterator."""

from collections.abc import Iterator

__all__ = ["CyclingIterator"]


class CyclingIterator(Iterator):
    """What generator_fn(epoch) gives for one epoch after the other, up to n."""

    def __init__(self, n, generator_fn, start_epoch=0):
        self._n, self._generator_fn, self._epoch = n, generator_fn, start_epoch
        self._iter = generator_fn(start_epoch)

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            try:
                return next(self._iter)
            except StopIteration:
                if self._epoch >= self._n - 1:
                    raise
                self._epoch += 1
                self._iter = self._generator_fn(self._epoch)
