"""Exponential families: densities exp(<t(x), natural parameters> - log normalizer + carrier)."""

import mica
from mica.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A distribution whose entropy follows from the derivative of its log normalizer."""

    @property
    def _natural_params(self):
        raise NotImplementedError

    def _log_normalizer(self, *natural_params):
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self):
        raise NotImplementedError

    def entropy(self):
        """The Bregman divergence of the log normalizer."""
        carrier = self._mean_carrier_measure
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with mica.enable_grad():
            normalizer = self._log_normalizer(*natural)
            slopes = mica.autograd.grad(normalizer.sum(), natural, create_graph=True)
        result = normalizer - carrier
        for parameter, slope in zip(natural, slopes, strict=True):
            result = result - (parameter * slope).reshape(self._batch_shape + (-1,)).sum(-1)
        return result
