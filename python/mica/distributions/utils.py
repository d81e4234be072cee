"""What the distributions share: broadcasting of parameters, probabilities and logits, triangular matrices."""

import functools

import mica
from mica.overrides import has_torch_function, is_tensor_like

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060
_Number = (int, float, bool)


def broadcast_all(*values):
    """The values as tensors of one shape. A number takes the dtype and device of the first tensor."""
    if not all(is_tensor_like(v) or isinstance(v, _Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    like = next((v for v in values if isinstance(v, mica.Tensor)), None)
    dtype, device = (mica.get_default_dtype(), None) if like is None else (like.dtype, like.device)
    tensors = [v if is_tensor_like(v) else mica.tensor(v, dtype=dtype, device=device) for v in values]
    if has_torch_function(tensors):
        return mica.broadcast_tensors(*tensors)
    shape = tensors[0].shape if len(tensors) == 1 else mica.broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t if t.shape == shape else t.expand(shape) for t in tensors)


def all_numbers(*values):
    return all(isinstance(v, _Number) for v in values)


def _standard_normal(shape, dtype, device):
    return mica.empty(shape, dtype=dtype, device=device).normal_()


def _sum_rightmost(value, dim):
    """The sum over the last `dim` dimensions."""
    if dim == 0:
        return value
    return value.reshape(value.shape[:-dim] + (-1,)).sum(-1)


def logits_to_probs(logits, is_binary=False):
    """Probabilities of log odds (binary), or of unnormalised log probabilities along the last dimension."""
    return mica.sigmoid(logits) if is_binary else mica.softmax(logits, -1)


def clamp_probs(probs):
    """Probabilities kept off 0 and 1 by the dtype's epsilon."""
    eps = mica.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs, is_binary=False):
    """Log odds (binary), or log probabilities, of probabilities kept off 0 and 1."""
    inside = clamp_probs(probs)
    return mica.log(inside) - mica.log1p(-inside) if is_binary else mica.log(inside)


class lazy_property:
    """An attribute that its method computes at the first use, with gradients recorded; then it is the instance's own."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)

    def __get__(self, instance, owner=None):
        if instance is None:
            return _LazyOfClass(self.wrapped)
        with mica.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyOfClass(lazy_property, property):
    """A lazy property as its class shows it: documentation sees a property, and validation sees that it is lazy."""

    def __init__(self, wrapped):
        property.__init__(self, wrapped)


def kept(owner, name, source, compute):
    """The result of `compute(source)`. It is kept with its owner until the source is replaced or changed in place.

    Results that a gradient flows through are not kept, nor those of inference tensors, which do not count their changes.
    """
    if source.requires_grad or source.is_inference():
        return compute(source)
    known = owner.__dict__.get(name)
    if known is None or known[0] is not source or known[1] != source._version:
        known = owner.__dict__[name] = (source, source._version, compute(source))
    return known[2]


def _lower_mask(n, diag, device):
    column = mica.arange(n, device=device)
    return column < column.view(-1, 1) + (diag + 1)


def tril_matrix_to_vec(mat, diag=0):
    """The elements of the lower triangle, row by row, as vectors."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _lower_mask(n, diag, mat.device)]


def vec_to_tril_matrix(vec, diag=0):
    """Square matrices whose lower triangle holds the elements of vectors, row by row."""
    length = vec.shape[-1]
    # The side d solves d^2 + (1 + 2 diag) d - |diag| (diag + 1) - 2 length = 0.
    b = 1 + 2 * diag
    side = (-b + (b * b + 8 * length + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if abs(round(side) - side) > mica.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    n = round(side)
    mat = vec.new_zeros(vec.shape[:-1] + (n, n))
    mat[..., _lower_mask(n, diag, vec.device)] = vec
    return mat
