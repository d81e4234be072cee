"""Adam with the largest gradient in place of the mean square."""

from mica import _C
from mica.optim.optimizer import (
    Optimizer,
    _check_betas,
    _check_lr,
    _check_not_negative,
    _loss_of,
    _numbers_to_tensors,
)

__all__ = ["Adamax", "adamax"]


class Adamax(Optimizer):
    """Adam that divides by a decaying maximum of the gradients' sizes."""

    def __init__(
        self,
        params,
        lr=2e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        capturable=False,
    ):
        _check_lr(lr)
        _check_not_negative(eps=eps)
        _check_betas(betas)
        _check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
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
        _numbers_to_tensors(self, "step")

    def step(self, closure=None):
        """Change the parameters once by their gradients; a closure is called for the loss first."""
        loss = None if closure is None else _loss_of(closure)
        _C._adamax_step(self.param_groups, self.state)
        return loss


def adamax(
    params,
    grads,
    exp_avgs,
    exp_infs,
    state_steps,
    foreach=None,
    maximize=False,
    differentiable=False,
    capturable=False,
    has_complex=False,
    *,
    eps,
    beta1,
    beta2,
    lr,
    weight_decay,
):
    """One step of Adamax over lists."""
    options = {
        "lr": lr,
        "eps": eps,
        "weight_decay": weight_decay,
        "maximize": maximize,
        "differentiable": differentiable,
        "capturable": capturable,
        "betas": (beta1, beta2),
    }
    _C._adamax_lists(options, params, grads, state_steps, exp_avgs, exp_infs)
