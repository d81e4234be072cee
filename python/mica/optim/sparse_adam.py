"""Adam for sparse gradients."""

from mica._C import _sparse_coo_tensor_unsafe, zeros_like
from mica.autograd import no_grad
from mica.optim.optimizer import Optimizer, _check_betas, _loss_of

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam that touches only the elements of a sparse gradient."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        if hasattr(lr, "numel") and lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, but it has {lr.numel()} elements")
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        _check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        complex_params = [
            [i, j] for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"]) if p.is_complex()
        ]
        if complex_params:
            raise ValueError(
                f"Complex params at indices {complex_params}: SparseAdam does not support complex parameters"
            )

    def step(self, closure=None):
        """Change the parameters once by their gradients; a closure is called for the loss first."""
        loss = None if closure is None else _loss_of(closure)
        with no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is None:
                        continue
                    if not parameter.grad.is_sparse:
                        raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
                    self._step_one(parameter, group)
        return loss

    def _step_one(self, parameter, group):
        """Adam's formula for the elements that the gradient holds; the moments of all others stay as they are."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = zeros_like(parameter)
            state["exp_avg_sq"] = zeros_like(parameter)
        state["step"] += 1
        gradient = parameter.grad.coalesce()
        if group["maximize"]:
            gradient = -gradient
        values = gradient._values()
        if values.numel() == 0:
            return
        indices, size = gradient._indices(), gradient.size()

        def sparse(elements):
            return _sparse_coo_tensor_unsafe(indices, elements, size, True)

        beta1, beta2 = group["betas"]
        average, square = state["exp_avg"], state["exp_avg_sq"]
        before = average.sparse_mask(gradient)._values()
        change = values.sub(before).mul_(1 - beta1)
        average.add_(sparse(change))
        numerator = change.add_(before)
        before = square.sparse_mask(gradient)._values()
        change = values.pow(2).sub_(before).mul_(1 - beta2)
        square.add_(sparse(change))
        denominator = change.add_(before).sqrt_().add_(group["eps"])
        correction = (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
        rate = float(group["lr"])
        parameter.add_(sparse(numerator.div_(denominator).mul_(-rate * correction)))
