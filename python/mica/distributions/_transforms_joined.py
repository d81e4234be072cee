"""Transforms side by side along a dimension."""

import mica
from mica.distributions import constraints
from mica.distributions._transform_base import Transform
from mica.distributions.utils import _sum_rightmost, lazy_property


class _Joined(Transform):
    """Several transforms, each of a part of the values."""

    def _take(self, tseq, dim, cache_size):
        tseq = list(tseq)
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        if cache_size:
            tseq = [t.with_cache(cache_size) for t in tseq]
        Transform.__init__(self, cache_size=cache_size)
        self.transforms = tseq
        self.dim = dim

    def _require(self, value, size, name, size_name, what="tensor"):
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for {what} with {value.dim()} dimensions")
        if value.size(self.dim) != size:
            raise AssertionError(f"{name}.size({self.dim}) = {value.size(self.dim)} must equal {size_name} {size}")

    @property
    def bijective(self):
        return all(t.bijective for t in self.transforms)


class CatTransform(_Joined):
    """Each transform takes a stretch of the dimension, as `cat` joins them."""

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0):
        self._take(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})")

    @lazy_property
    def event_dim(self):
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self):
        return sum(self.lengths)

    def with_cache(self, cache_size=1):
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _pieces(self, value, name, what="tensor"):
        self._require(value, self.length, name, "length", what)
        return value.split(self.lengths, self.dim)

    def _call(self, x):
        return mica.cat([t(v) for t, v in zip(self.transforms, self._pieces(x, "x"), strict=True)], dim=self.dim)

    def _inverse(self, y):
        return mica.cat([t.inv(v) for t, v in zip(self.transforms, self._pieces(y, "y"), strict=True)], dim=self.dim)

    def log_abs_det_jacobian(self, x, y):
        parts = []
        for transform, a, b in zip(self.transforms, self._pieces(x, "x", "x"), self._pieces(y, "y", "y"), strict=True):
            part = transform.log_abs_det_jacobian(a, b)
            parts.append(_sum_rightmost(part, max(self.event_dim - transform.event_dim, 0)))
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return mica.cat(parts, dim=dim) if dim < 0 else sum(parts)  # summed where the dimension is the event's

    @constraints.dependent_property
    def domain(self):
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self):
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_Joined):
    """Each transform takes one index of the dimension, as `stack` joins them."""

    def __init__(self, tseq, dim=0, cache_size=0):
        self._take(tseq, dim, cache_size)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _pieces(self, value, name, what="tensor"):
        self._require(value, len(self.transforms), name, "len(transforms)", what)
        return value.unbind(self.dim)

    def _call(self, x):
        return mica.stack([t(v) for t, v in zip(self.transforms, self._pieces(x, "x"), strict=True)], dim=self.dim)

    def _inverse(self, y):
        return mica.stack([t.inv(v) for t, v in zip(self.transforms, self._pieces(y, "y"), strict=True)], dim=self.dim)

    def log_abs_det_jacobian(self, x, y):
        triples = zip(self.transforms, self._pieces(x, "x", "x"), self._pieces(y, "y", "y"), strict=True)
        return mica.stack([t.log_abs_det_jacobian(a, b) for t, a, b in triples], dim=self.dim)

    @constraints.dependent_property
    def domain(self):
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self):
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
