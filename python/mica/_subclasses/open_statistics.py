"""Covariances of a fake tensor whose number of observations is open: the number that sums are divided by follows from it.

The engine divides by the observations less the correction, and the size could not be recognised in that number.
"""

import mica

__all__ = ["NAMES", "statistic"]

NAMES = frozenset(["cov", "corrcoef"])


def statistic(name, args, kwargs, env):
    """The result of a call by its name, or None where the engine's is as good."""
    x = args[0] if args else kwargs.get("input", kwargs.get("self"))
    sizes = getattr(x, "__dict__", {}).get("_sizes", ())
    if len(sizes) not in (1, 2) or isinstance(sizes[-1], int):
        return None
    given = {key: value for key, value in kwargs.items() if key not in ("input", "self")}
    correction = given.pop("correction", 1)
    if any(value is not None for value in given.values()) or len(args) > 1:
        return None
    made = _covariance(x, env.create_symintnode(sizes[-1]), correction)
    return made if name == "cov" else _correlation(made)


def _covariance(x, count, correction):
    rows = x.unsqueeze(0) if x.dim() == 1 else x
    centred = rows - (rows.sum(1) / count).unsqueeze(1)
    degrees = count - correction if count > correction else 0
    return (centred.mm(centred.t().conj()) / degrees).squeeze()


def _correlation(covariance):
    if covariance.dim() == 0:
        return covariance / covariance
    diagonal = covariance.diagonal()
    deviation = (mica.real(diagonal) if diagonal.is_complex() else diagonal).sqrt()
    made = covariance / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if not made.is_complex():
        return made.clamp(-1, 1)
    return mica.complex(made.real.clamp(-1, 1), made.imag.clamp(-1, 1))
