"""Von Mises distributions on the circle."""

import math

import mica
from mica.distributions import constraints
from mica.distributions.distribution import Distribution
from mica.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]

# Abramowitz and Stegun, 9.8.1 to 9.8.4: I0 and I1 by (x / 3.75)^2 below 3.75, by 3.75 / x above.
_SMALL = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3),
)
_LARGE = (
    (
        0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2, -0.2057706e-1, 0.2635537e-1, -0.1647633e-1,
        0.392377e-2,
    ),
    (
        0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1, 0.2282967e-1, -0.2895312e-1,
        0.1787654e-1, -0.420059e-2,
    ),
)  # fmt: skip


def _polynomial(y, coefficients):
    result = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = c + y * result
    return result


def _log_modified_bessel_fn(x, order=0):
    """log I0(x) or log I1(x) of positive x."""
    if order not in (0, 1):
        raise AssertionError(f"order must be 0 or 1, got {order}")
    y = x / 3.75
    small = _polynomial(y * y, _SMALL[order])
    small = (x.abs() * small if order == 1 else small).log()
    large = x - 0.5 * x.log() + _polynomial(3.75 / x, _LARGE[order]).log()
    return mica.where(x < 3.75, small, large)


class VonMises(Distribution):
    """Angles around `loc`, the tighter the larger the `concentration`."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc, concentration, validate_args=None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, mica.Size(), validate_args)

    def expand(self, batch_shape, _instance=None):
        loc, concentration = self.loc.expand(batch_shape), self.concentration.expand(batch_shape)
        return type(self)(loc, concentration, validate_args=self.__dict__.get("_validate_args"))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        density = self.concentration * mica.cos(value - self.loc)
        return density - math.log(2 * math.pi) - _log_modified_bessel_fn(self.concentration, order=0)

    @lazy_property
    def _loc(self):
        return self.loc.to(mica.double)

    @lazy_property
    def _concentration(self):
        return self.concentration.to(mica.double)

    @lazy_property
    def _proposal_r(self):
        kappa = self._concentration
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        return mica.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape=mica.Size()):  # noqa: B008
        """Best and Fisher's rejection (1979), in double: in float it would hardly end for small concentrations."""
        with mica.no_grad():
            x = mica.zeros(self._extended_shape(sample_shape), dtype=mica.double, device=self.loc.device)
            r = self._proposal_r
            # Where the parameters make no distribution, no sample would ever be accepted: the result is NaN there.
            hopeless = (~(self._concentration > 0) | r.isnan()).expand(x.shape)
            done = hopeless
            while not done.all():
                u1, u2, u3 = mica.rand((3,) + x.shape, dtype=x.dtype, device=x.device).unbind()
                z = mica.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = self._concentration * (r - f)
                accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                # A sample that was accepted is drawn again with the others: that is torch's stream.
                x = mica.where(accept, (u3 - 0.5).sign() * f.acos(), x)
                done = done | accept
            angle = (x + math.pi + self._loc) % (2 * math.pi) - math.pi
            return angle.masked_fill(hopeless, math.nan).to(self.loc.dtype)

    @property
    def mean(self):
        """The circular mean."""
        return self.loc

    @property
    def mode(self):
        return self.loc

    @lazy_property
    def variance(self):
        """The circular variance."""
        ratio = _log_modified_bessel_fn(self.concentration, order=1) - _log_modified_bessel_fn(self.concentration)
        return 1 - ratio.exp()
