"""Adam that waits until its variance is known."""

from mica import _C
from mica.optim.optimizer import (
    Optimizer,
    _check_betas,
    _check_lr,
    _check_not_negative,
    _loss_of,
    _numbers_to_tensors,
)

__all__ = ["RAdam", "radam"]


class RAdam(Optimizer):
    """Adam whose adaptive step is held back while the mean square rests on few gradients."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=0,
        decoupled_weight_decay=False,
        *,
        foreach=None,
        maximize=False,
        capturable=False,
        differentiable=False,
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
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)
            group.setdefault("differentiable", False)
            group.setdefault("decoupled_weight_decay", False)
            group.setdefault("capturable", False)
        _numbers_to_tensors(self, "step")

    def step(self, closure=None):
        """Change the parameters once by their gradients; a closure is called for the loss first."""
        loss = None if closure is None else _loss_of(closure)
        _C._radam_step(self.param_groups, self.state)
        return loss


def radam(
    params,
    grads,
    exp_avgs,
    exp_avg_sqs,
    state_steps,
    decoupled_weight_decay=False,
    foreach=None,
    differentiable=False,
    capturable=False,
    has_complex=False,
    maximize=False,
    *,
    beta1,
    beta2,
    lr,
    weight_decay,
    eps,
):
    """One step of RAdam over lists."""
    options = {
        "lr": lr,
        "eps": eps,
        "weight_decay": weight_decay,
        "decoupled_weight_decay": decoupled_weight_decay,
        "maximize": maximize,
        "differentiable": differentiable,
        "capturable": capturable,
        "betas": (beta1, beta2),
    }
    _C._radam_lists(options, params, grads, state_steps, exp_avgs, exp_avg_sqs)
