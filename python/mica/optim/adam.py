"""Adam."""

from mica._C import Tensor
from mica._generated import optimizers
from mica._generated.optimizers import adam
from mica.optim._options import _to_scalar

__all__ = ["Adam", "adam"]


class Adam(optimizers.Adam):
    """Steps by running means of the gradient and of its square, both corrected for their start at zero.

    Args:
        params: parameters, (name, parameter) pairs, or groups of them as dicts
        lr: the learning rate
        betas: how much of each running mean is kept in a step
        eps: is added to the root of the second mean, so that nothing is divided by zero
        weight_decay: how much of the parameter is added to its gradient
        amsgrad: whether the largest of the second means is used
        maximize: whether the objective is to grow
        capturable: whether steps can be part of a CUDA graph
        differentiable: whether autograd records the steps
        decoupled_weight_decay: whether weight_decay shrinks the parameter itself, as in AdamW
        foreach: changes nothing: every step is one pass over memory
        fused: on CUDA, keeps the count of steps on the GPU

    Example::

        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    """

    @staticmethod
    def _check_options(options):
        """The rate and the betas may be tensors, which torch's steps over lists do not take."""
        lists_only = options["foreach"] and not options["capturable"]
        if isinstance(options["lr"], Tensor) and lists_only:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        optimizers.Adam._check_options(options)
        betas = options["betas"]
        kinds = {Tensor if isinstance(b, Tensor) else float for b in betas if isinstance(b, (float, Tensor))}
        if len(kinds) != 1 or not all(isinstance(b, (float, Tensor)) for b in betas):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas):
            if isinstance(beta, Tensor):
                if lists_only:
                    raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
                if beta.numel() != 1:
                    raise ValueError(f"Tensor betas[{i}] must be 1-element")
        options["betas"] = tuple(map(_to_scalar, betas))
