"""L-BFGS."""

from mica import _C
from mica.optim.optimizer import Optimizer, _check_tensor_lr

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """A quasi-Newton method: several evaluations of the closure in each step, along directions that the last gradients
    suggest. `line_search_fn` is "strong_wolfe" or None. There is one group of parameters.
    """

    def __init__(
        self,
        params,
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
    ):
        _check_tensor_lr(lr)
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]
        self._numel_cache = None

    def step(self, closure):
        """Minimise for at most `max_iter` iterations; returns the loss before the first."""
        if len(self.param_groups) != 1:
            raise AssertionError(f"Expected exactly one param_group, but got {len(self.param_groups)}")
        group = self.param_groups[0]
        if self._has_spread:
            raise NotImplementedError("LBFGS of parameters that are spread over processes is not in Mica")
        return _C._lbfgs_step(group["params"], group, self.state[group["params"][0]], closure)
