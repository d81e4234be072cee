"""Mixtures of distributions of one family."""

import mica
from mica.distributions import constraints
from mica.distributions.categorical import Categorical
from mica.distributions.constraints import MixtureSameFamilyConstraint
from mica.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: a Categorical chooses one of the components, which lie along the last batch dimension."""

    arg_constraints = {}
    has_rsample = False
    _expands = {"_mixture_distribution": 0, "_component_distribution": 1}
    _carries = ("_num_component", "_event_ndims")

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        mixed, components = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        if any(a != 1 and b != 1 and a != b for a, b in zip(reversed(mixed), reversed(components), strict=False)):
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({mixed}) is not compatible with "
                f"`component_distribution.batch_shape`({components})"
            )
        chosen_from, given = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if chosen_from != given:
            raise ValueError(
                f"`mixture_distribution component` ({chosen_from}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({given})"
            )
        self._num_component = chosen_from
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(batch_shape=components, event_shape=event_shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self):
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self):
        """Which component is chosen."""
        return self._mixture_distribution

    @property
    def component_distribution(self):
        """The components."""
        return self._component_distribution

    def _weighted(self, values):
        """The mean of values of the components."""
        probs = self.mixture_distribution.probs
        batch, mixed = len(self.batch_shape), len(self.mixture_distribution.batch_shape)
        padding = 0 if mixed == 1 else batch - mixed
        shape = probs.shape[:-1] + (1,) * padding + probs.shape[-1:] + (1,) * self._event_ndims
        return mica.sum(probs.reshape(shape) * values, dim=-1 - self._event_ndims)

    @property
    def mean(self):
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self):
        inner = self._weighted(self.component_distribution.variance)
        return inner + self._weighted((self.component_distribution.mean - self._pad(self.mean)).pow(2.0))

    def cdf(self, x):
        return mica.sum(self.component_distribution.cdf(self._pad(x)) * self.mixture_distribution.probs, dim=-1)

    def log_prob(self, x):
        if self._validate_args:
            self._validate_sample(x)
        of_components = self.component_distribution.log_prob(self._pad(x))
        return mica.logsumexp(of_components + mica.log_softmax(self.mixture_distribution.logits, dim=-1), dim=-1)

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        with mica.no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            event = self.event_shape
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            index = chosen.reshape(chosen.shape + (1,) * (len(event) + 1))
            index = index.repeat((1,) * len(chosen.shape) + (1,) + tuple(event))
            return mica.gather(drawn, dim, index).squeeze(dim)

    def _pad(self, x):
        return x.unsqueeze(-1 - self._event_ndims)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
