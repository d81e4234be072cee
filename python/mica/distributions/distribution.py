"""The base of all distributions."""

import warnings

import mica
from mica.distributions import constraints
from mica.distributions.utils import lazy_property

__all__ = ["Distribution"]


class Distribution:
    """A probability distribution, or a batch of them: `batch_shape` of samples of shape `event_shape` each.

    A class that names its parameters in `_expands` (with the number of their dimensions that belong to an event), and
    what passes unchanged in `_carries`, need not write `expand`.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    _expands = None
    _carries = ()

    @staticmethod
    def set_default_validate_args(value):
        """Whether distributions check their parameters and values unless they are told otherwise."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape=mica.Size(), event_shape=mica.Size(), validate_args=None):  # noqa: B008
        self._batch_shape = batch_shape
        self._event_shape = event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        elif self._validate_args and mica.compiler.is_compiling():
            self._validate_args = False  # checks ask for values; torch turns them off when it first compiles
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self):
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            arg_constraints = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize "
                "the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # computed from a parameter that is checked
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape, _instance=None):
        """The distribution with its batch expanded: views of the parameters, which are not checked again."""
        owner = next((c for c in type(self).__mro__ if vars(c).get("_expands") is not None), None)
        if owner is None:
            raise NotImplementedError
        new = self._get_checked_instance(owner, _instance)
        batch_shape = mica.Size(batch_shape)
        for name, own in owner._expands.items():
            if name in self.__dict__:
                setattr(new, name, _expanded(self.__dict__[name], batch_shape, own))
        for name in owner._carries:
            setattr(new, name, getattr(self, name))
        return self._complete(new, batch_shape)

    def _complete(self, new, batch_shape):
        """The last step of an expansion: shapes and the state of validation."""
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self):
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def arg_constraints(self):
        """The constraint that each parameter must satisfy, by name."""
        raise NotImplementedError

    @property
    def support(self):
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self):
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self):
        """The mode."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self):
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self):
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        """Samples of shape sample_shape + batch_shape + event_shape, without a gradient."""
        with mica.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        """The same samples as functions of the parameters, with their gradient."""
        raise NotImplementedError

    def sample_n(self, n):
        """The older spelling of sample((n,))."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", category=FutureWarning, stacklevel=2
        )
        return self.sample(mica.Size((n,)))

    def log_prob(self, value):
        """The logarithm of the density or probability at `value`."""
        raise NotImplementedError

    def cdf(self, value):
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value):
        """The value with the given probability below it."""
        raise NotImplementedError

    def enumerate_support(self, expand=True):
        """All values of a discrete distribution along a new first dimension."""
        raise NotImplementedError

    def entropy(self):
        """The entropy, one number per distribution of the batch."""
        raise NotImplementedError

    def perplexity(self):
        """The exponential of the entropy."""
        return mica.exp(self.entropy())

    def _extended_shape(self, sample_shape=mica.Size()):  # noqa: B008
        if not isinstance(sample_shape, mica.Size):
            sample_shape = mica.Size(sample_shape)
        return mica.Size(sample_shape + self._batch_shape + self._event_shape)

    def _filled(self, number, like):
        return mica.full(self._extended_shape(), number, dtype=like.dtype, device=like.device)

    def _validate_sample(self, value):
        """Raise unless `value` has a shape that fits and lies in the support."""
        if not isinstance(value, mica.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        given, event = value.size(), self._event_shape
        if given[len(given) - len(event) :] != event:
            raise ValueError(f"The right-most size of value must match event_shape: {given} vs {event}.")
        expected = self._batch_shape + event
        if any(i != 1 and j != 1 and i != j for i, j in zip(reversed(given), reversed(expected), strict=False)):
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {given} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is not None:
            return _instance
        if type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return self.__new__(type(self))

    def __repr__(self):
        own = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        shown = (f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in own.items())
        return f"{self.__class__.__name__}({', '.join(shown)})"


def _expanded(value, batch_shape, own):
    """A parameter, or a distribution that serves another, with its batch expanded; the last `own` dimensions stay."""
    shape = value.batch_shape if isinstance(value, Distribution) else value.shape
    return value.expand(batch_shape + shape[len(shape) - own :])
