"""Adam."""

from mica._C import Tensor
from mica._generated import optimizers
from mica._generated.optimizers import adam
from mica.optim._options import _to_scalar

__all__ = ["Adam", "adam"]


class Adam(optimizers.Adam):
    """Steps by running means of the gradient and of its square, both corrected for their start at zero.

    `amsgrad` keeps the largest of the second; `decoupled_weight_decay` shrinks the parameters themselves (AdamW).
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
