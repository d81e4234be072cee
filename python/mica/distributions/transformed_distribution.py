"""Distributions of transformed samples."""

import mica
from mica.distributions import constraints
from mica.distributions.distribution import Distribution
from mica.distributions.independent import Independent
from mica.distributions.transforms import ComposeTransform, Transform
from mica.distributions.utils import _sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of samples of a base distribution after one transform or a list of them."""

    arg_constraints = {}
    _own = ()

    def __init__(self, base_distribution, transforms, validate_args=None):
        if isinstance(transforms, Transform):
            transforms = [transforms]
        elif not isinstance(transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        elif not all(isinstance(t, Transform) for t in transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.transforms = transforms
        whole = ComposeTransform(transforms)
        needed, made = whole.domain.event_dim, whole.codomain.event_dim

        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_event_dim = len(base_distribution.event_shape)
        if len(base_shape) < needed:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {needed}, but got {base_shape}."
            )
        # A transform with batched parameters broadcasts the base.
        shape = whole.forward_shape(base_shape)
        wide = whole.inverse_shape(shape)
        if wide != base_shape:
            base_distribution = base_distribution.expand(wide[: len(wide) - base_event_dim])
        if needed > base_event_dim:
            base_distribution = Independent(base_distribution, needed - base_event_dim)
        self.base_dist = base_distribution

        event_dim = max(made, base_event_dim + made - needed)
        if len(shape) < event_dim:
            raise AssertionError(f"forward_shape length {len(shape)} must be >= event_dim {event_dim}")
        cut = len(shape) - event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        # Families made by transforms that name parameters of their own expand those too.
        owner = next(c for c in type(self).__mro__ if "_own" in vars(c))
        new = self._get_checked_instance(owner, _instance)
        batch_shape = mica.Size(batch_shape)
        shape = batch_shape + self.event_shape
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        new.transforms = self.transforms
        for name in owner._own:
            setattr(new, name, getattr(self, name).expand(batch_shape))
        return self._complete(new, batch_shape)

    @constraints.dependent_property(is_discrete=False)
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        extra = len(self.event_shape) - support.event_dim
        return constraints.independent(support, extra) if extra > 0 else support

    @property
    def has_rsample(self):
        return self.base_dist.has_rsample

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        with mica.no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=mica.Size()):  # noqa: B008
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        event_dim, result, y = len(self.event_shape), 0.0, value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            jacobian = transform.log_abs_det_jacobian(x, y)
            result = result - _sum_rightmost(jacobian, event_dim - transform.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return result + _sum_rightmost(base, event_dim - len(self.base_dist.event_shape))

    def _monotonize_cdf(self, value):
        """A probability from below turned into one from above where the transforms turn the order around."""
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return value
        return sign * (value - 0.5) + 0.5

    def cdf(self, value):
        for transform in self.transforms[::-1]:
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value):
        return self._transformed(self.base_dist.icdf(self._monotonize_cdf(value)))
