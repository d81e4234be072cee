"""The transforms of torch.func, where torch's package has them."""

from mica.func import functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp  # noqa: F401
from mica.func._transforms import _slice_argnums  # noqa: F401
