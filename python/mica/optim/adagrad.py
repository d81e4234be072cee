"""Steps by the sum of all squares."""

from mica import _C
from mica.optim.optimizer import (
    Optimizer,
    _check_fused,
    _check_lr,
    _check_not_negative,
    _loss_of,
    _numbers_to_tensors,
)

__all__ = ["Adagrad", "adagrad"]


class Adagrad(Optimizer):
    """Divides gradients by the root of the sum of all their squares."""

    def __init__(
        self,
        params,
        lr=1e-2,
        lr_decay=0,
        weight_decay=0,
        initial_accumulator_value=0,
        eps=1e-10,
        foreach=None,
        *,
        maximize=False,
        differentiable=False,
        fused=None,
    ):
        _check_lr(lr)
        _check_not_negative(lr_decay=lr_decay, weight_decay=weight_decay)
        _check_not_negative(initial_accumulator_value=initial_accumulator_value, eps=eps)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        _check_fused(self, foreach, differentiable, fused)
        for group in self.param_groups:
            for param in group["params"]:
                param.dim()  # refused by a parameter that has no shape yet, and so can have no sums
        _C._adagrad_init(self.param_groups, self.state)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            group.setdefault("maximize", False)
            group.setdefault("differentiable", False)
            group.setdefault("fused", None)
        _numbers_to_tensors(self, "step")

    def step(self, closure=None):
        """Change the parameters once by their gradients; a closure is called for the loss first."""
        loss = None if closure is None else _loss_of(closure)
        _C._adagrad_step(self.param_groups, self.state, self.__dict__.get("grad_scale"), self.__dict__.get("found_inf"))
        return loss

    def share_memory(self):
        """Move the sums to memory that other processes can see."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()


def adagrad(
    params,
    grads,
    state_sums,
    state_steps,
    fused=None,
    grad_scale=None,
    found_inf=None,
    has_sparse_grad=False,
    foreach=None,
    differentiable=False,
    has_complex=False,
    *,
    lr,
    weight_decay,
    lr_decay,
    eps,
    maximize,
):
    """One step of Adagrad over lists."""
    options = {
        "lr": lr,
        "lr_decay": lr_decay,
        "eps": eps,
        "weight_decay": weight_decay,
        "maximize": maximize,
        "differentiable": differentiable,
    }
    _C._adagrad_lists(options, params, grads, state_steps, state_sums, grad_scale, found_inf)
