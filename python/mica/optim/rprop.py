"""Steps by the sign of the gradient."""

from mica import _C
from mica.optim.optimizer import (
    Optimizer,
    _check_lr,
    _loss_of,
    _numbers_to_tensors,
)

__all__ = ["Rprop", "rprop"]


class Rprop(Optimizer):
    """Moves by a step size per element that grows while the gradient keeps its sign and shrinks when it turns."""

    def __init__(
        self,
        params,
        lr=1e-2,
        etas=(0.5, 1.2),
        step_sizes=(1e-6, 50),
        *,
        capturable=False,
        foreach=None,
        maximize=False,
        differentiable=False,
    ):
        _check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)
            group.setdefault("differentiable", False)
            group.setdefault("capturable", False)
        _numbers_to_tensors(self, "step")

    def step(self, closure=None):
        """Change the parameters once by their gradients; a closure is called for the loss first."""
        loss = None if closure is None else _loss_of(closure)
        _C._rprop_step(self.param_groups, self.state)
        return loss


def rprop(
    params,
    grads,
    prevs,
    step_sizes,
    state_steps,
    foreach=None,
    capturable=False,
    maximize=False,
    differentiable=False,
    has_complex=False,
    *,
    step_size_min,
    step_size_max,
    etaminus,
    etaplus,
):
    """One step of Rprop over lists."""
    options = {
        "etas": (etaminus, etaplus),
        "step_sizes": (step_size_min, step_size_max),
        "maximize": maximize,
        "differentiable": differentiable,
        "capturable": capturable,
    }
    _C._rprop_lists(options, params, grads, state_steps, prevs, step_sizes)
