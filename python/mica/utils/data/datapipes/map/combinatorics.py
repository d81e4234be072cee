"""Samples in random order. This pipe is a stream, because a random order has no index."""

import random
from typing import TypeVar

from mica.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from mica.utils.data.sampler import random_seed

__all__ = ["ShufflerIterDataPipe"]

_T_co = TypeVar("_T_co", covariant=True)


class ShufflerIterDataPipe(IterDataPipe[_T_co]):
    """The samples at the indices in random order. From the same seed it is torch's order."""

    def __init__(self, datapipe, *, indices=None):
        super().__init__()
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._enabled = True
        self._seed = None
        self._rng = random.Random()
        self._shuffled_indices = self.indices

    def set_shuffle(self, shuffle=True):
        """Turn shuffling on or off."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed):
        """Use this seed in the next iteration."""
        self._seed = seed
        return self

    def __iter__(self):
        if not self._enabled:
            for index in self.indices:
                yield self.datapipe[index]
        else:
            while self._shuffled_indices:
                yield self.datapipe[self._shuffled_indices.pop()]

    def reset(self):
        if self._enabled and self._seed is None:
            self._seed = random_seed()
        self._rng.seed(self._seed)
        self._seed = None
        self._shuffled_indices = self._rng.sample(self.indices, len(self.indices))

    def __len__(self):
        return len(self.datapipe)

    def __getstate__(self):
        return self._hooked_state(
            (
                self.datapipe,
                self.indices,
                self._enabled,
                self._seed,
                self._rng.getstate(),
                self._shuffled_indices,
                self._valid_iterator_id,
                self._number_of_samples_yielded,
            )
        )

    def __setstate__(self, state):
        self.datapipe, self.indices, self._enabled, self._seed, generator, self._shuffled_indices, *counts = state
        self._valid_iterator_id, self._number_of_samples_yielded = counts
        self._rng = random.Random()
        self._rng.setstate(generator)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
