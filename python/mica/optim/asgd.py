"""Averaged gradient descent."""

from mica import _C
from mica.optim.optimizer import (
    Optimizer,
    _check_lr,
    _check_not_negative,
    _loss_of,
    _numbers_to_tensors,
)

__all__ = ["ASGD", "asgd"]


class ASGD(Optimizer):
    """Gradient descent with a shrinking rate that also keeps the mean of the parameters from step `t0` on."""

    def __init__(
        self,
        params,
        lr=1e-2,
        lambd=1e-4,
        alpha=0.75,
        t0=1e6,
        weight_decay=0,
        foreach=None,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        _check_lr(lr)
        _check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
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
        _numbers_to_tensors(self, "step", "eta", "mu")

    def step(self, closure=None):
        """Change the parameters once by their gradients; a closure is called for the loss first."""
        loss = None if closure is None else _loss_of(closure)
        _C._asgd_step(self.param_groups, self.state)
        return loss


def asgd(
    params,
    grads,
    axs,
    mus,
    etas,
    state_steps,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
    has_complex=False,
    *,
    lambd,
    lr,
    t0,
    alpha,
    weight_decay,
):
    """One step of ASGD over lists."""
    options = {
        "lambd": lambd,
        "lr": lr,
        "t0": t0,
        "alpha": alpha,
        "weight_decay": weight_decay,
        "maximize": maximize,
        "differentiable": differentiable,
        "capturable": capturable,
    }
    _C._asgd_lists(options, params, grads, state_steps, etas, mus, axs)
