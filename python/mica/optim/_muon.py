"""Muon: momentum whose singular values are all brought near to one."""

from mica._generated import optimizers

__all__ = ["Muon"]

EPS = 1e-7
DEFAULT_A = 3.4445
DEFAULT_B = -4.7750
DEFAULT_C = 2.0315
DEFAULT_NS_STEPS = 5


class Muon(optimizers.Muon):
    """Moves matrices along their momentum, orthogonalised by a few Newton-Schulz iterations.

    For the matrices of hidden layers; other parameters want another optimizer.
    """

    def _made(self):
        """Only matrices can be orthogonalised."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}"
                    )
