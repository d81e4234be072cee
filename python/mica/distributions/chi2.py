"""Chi-squared distributions."""

from mica.distributions import constraints
from mica.distributions.gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The chi-squared distribution of `df` degrees of freedom."""

    arg_constraints = {"df": constraints.positive}
    _expands = Gamma._expands

    def __init__(self, df, validate_args=None):
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self):
        """The degrees of freedom."""
        return self.concentration * 2
