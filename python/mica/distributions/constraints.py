"""Regions that values lie in: `check` says for each event whether it does.

constraints.positive.check(value), constraints.interval(low, high), constraints.independent(constraints.real, 2)
"""

import mica
from mica.distributions._constraints_structured import (
    Constraint,
    _CorrCholesky,
    _LowerCholesky,
    _LowerTriangular,
    _Multinomial,
    _OneHot,
    _PositiveDefinite,
    _PositiveSemidefinite,
    _Simplex,
    _Square,
    _Symmetric,
)

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent",
    "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot",
    "positive", "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex",
    "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


def _require(condition, message):
    if not condition:
        raise AssertionError(message)


# ---------------------------------------------------------------------------------------------- depending on an instance


class _Dependent(Constraint):
    """A region that depends on other values: it can be checked on an instance only."""

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        self._is_discrete = is_discrete
        self._event_dim = event_dim
        super().__init__()

    @property
    def is_discrete(self):
        if self._is_discrete is NotImplemented:
            raise NotImplementedError(".is_discrete cannot be determined statically")
        return self._is_discrete

    @property
    def event_dim(self):
        if self._event_dim is NotImplemented:
            raise NotImplementedError(".event_dim cannot be determined statically")
        return self._event_dim

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, x):
        raise ValueError("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property on instances that is a dependent constraint on the class."""

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        super().__init__(fn)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, fn):
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint):
    """Whether a constraint can be checked on an instance only."""
    return isinstance(constraint, _Dependent)


# ---------------------------------------------------------------------------------------------- constraints of constraints


class _IndependentConstraint(Constraint):
    """A constraint whose events take in more dimensions: valid where all of their parts are."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        _require(
            isinstance(base_constraint, Constraint),
            f"base_constraint must be a Constraint, got {type(base_constraint).__name__}",
        )
        _require(
            isinstance(reinterpreted_batch_ndims, int),
            f"reinterpreted_batch_ndims must be an int, got {type(reinterpreted_batch_ndims).__name__}",
        )
        _require(
            reinterpreted_batch_ndims >= 0, f"reinterpreted_batch_ndims must be >= 0, got {reinterpreted_batch_ndims}"
        )
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__()

    @property
    def is_discrete(self):
        return self.base_constraint.is_discrete

    @property
    def event_dim(self):
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value):
        result = self.base_constraint.check(value)
        count = self.reinterpreted_batch_ndims
        if result.dim() < count:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return result.reshape(result.shape[: result.dim() - count] + (-1,)).all(-1)

    def __repr__(self):
        return f"{type(self).__name__[1:]}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: in the support of every component, whose dimension comes before the event's."""

    def __init__(self, base_constraint):
        _require(
            isinstance(base_constraint, Constraint),
            f"base_constraint must be a Constraint, got {type(base_constraint).__name__}",
        )
        self.base_constraint = base_constraint
        super().__init__()

    @property
    def is_discrete(self):
        return self.base_constraint.is_discrete

    @property
    def event_dim(self):
        return self.base_constraint.event_dim

    def check(self, value):
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return result.reshape(result.shape[: value.dim() - self.event_dim] + (-1,)).all(-1)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Parts(Constraint):
    """Constraints side by side along a dimension."""

    def __init__(self, cseq, dim):
        cseq = list(cseq)
        _require(all(isinstance(c, Constraint) for c in cseq), "All elements of cseq must be Constraint instances")
        self.cseq = cseq
        self.dim = dim
        super().__init__()

    @property
    def is_discrete(self):
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self):
        return max(c.event_dim for c in self.cseq)

    def _require_dim(self, value):
        _require(
            -value.dim() <= self.dim < value.dim(),
            f"dim {self.dim} out of range for value with {value.dim()} dimensions",
        )


class _Cat(_Parts):
    """Each constraint holds for a stretch of the dimension, as `cat` joins them."""

    def __init__(self, cseq, dim=0, lengths=None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        _require(
            len(self.lengths) == len(self.cseq),
            f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})",
        )

    def check(self, value):
        self._require_dim(value)
        pieces = value.split(self.lengths, self.dim) if sum(self.lengths) == value.size(self.dim) else None
        if pieces is None:  # a prefix, or too long: narrow says so
            starts = [sum(self.lengths[:i]) for i in range(len(self.lengths))]
            pieces = [value.narrow(self.dim, s, n) for s, n in zip(starts, self.lengths, strict=True)]
        return mica.cat([c.check(piece) for c, piece in zip(self.cseq, pieces, strict=True)], self.dim)


class _Stack(_Parts):
    """Each constraint holds for one index of the dimension, as `stack` joins them."""

    def __init__(self, cseq, dim=0):
        super().__init__(cseq, dim)

    @property
    def event_dim(self):
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value):
        self._require_dim(value)
        pieces = zip(self.cseq, value.unbind(self.dim), strict=False)
        return mica.stack([c.check(piece) for c, piece in pieces], self.dim)


# ---------------------------------------------------------------------------------------------- numbers


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


class _Real(Constraint):
    def check(self, value):
        return value == value  # not NaN


class _Integral(Constraint):
    is_discrete = True

    def _whole(self, value):
        return value % 1 == 0


class _IntegerInterval(_Integral):
    _bounds = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound, upper_bound):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__()

    def check(self, value):
        inside = (self.lower_bound <= value) & (value <= self.upper_bound)
        return self._whole(value) & inside if value.is_floating_point() else inside


class _IntegerLessThan(_Integral):
    _bounds = ("upper_bound",)

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound
        super().__init__()

    def check(self, value):
        return self._whole(value) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Integral):
    _bounds = ("lower_bound",)

    def __init__(self, lower_bound):
        self.lower_bound = lower_bound
        super().__init__()

    def check(self, value):
        return self._whole(value) & (value >= self.lower_bound)


class _Above(Constraint):
    _bounds = ("lower_bound",)

    def __init__(self, lower_bound):
        self.lower_bound = lower_bound
        super().__init__()


class _GreaterThan(_Above):
    def check(self, value):
        return self.lower_bound < value


class _GreaterThanEq(_Above):
    def check(self, value):
        return self.lower_bound <= value


class _LessThan(Constraint):
    _bounds = ("upper_bound",)

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound
        super().__init__()

    def check(self, value):
        return value < self.upper_bound


class _Between(Constraint):
    _bounds = ("lower_bound", "upper_bound")

    def __init__(self, lower_bound, upper_bound):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound
        super().__init__()


class _Interval(_Between):
    def check(self, value):
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    def check(self, value):
        return (self.lower_bound <= value) & (value < self.upper_bound)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
Constraint.__module__ = __name__
