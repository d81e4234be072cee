"""Distributions given by probabilities or by logits: whichever was given is kept, the other computed when asked for."""

from mica.distributions.utils import lazy_property, logits_to_probs, probs_to_logits

ONE_OF_TWO = "Either `probs` or `logits` must be specified, but not both."


def check_one_of_two(probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError(ONE_OF_TWO)


class BinaryOdds:
    """The parameters of a distribution over two outcomes, or of a distribution of counts of such outcomes."""

    @lazy_property
    def logits(self):
        """The log odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        """The probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self):
        """The shape of the parameter."""
        return self._param.size()

    def _new(self, *args, **kwargs):
        return self._param.new(*args, **kwargs)


class OfCategorical:
    """The parameters of a distribution that stands on a Categorical one, `_categorical`."""

    @property
    def _param(self):
        return self._categorical._param

    @property
    def probs(self):
        """The normalised probabilities of the categories."""
        return self._categorical.probs

    @property
    def logits(self):
        """The normalised log probabilities of the categories."""
        return self._categorical.logits

    @property
    def param_shape(self):
        """The shape of the parameter."""
        return self._categorical.param_shape

    def _new(self, *args, **kwargs):
        return self._categorical._new(*args, **kwargs)
