"""Parametrizations that are often used: orthogonal weights, weights of a length and a direction, of spectral norm 1."""

from mica import _C, linalg
from mica._C import Tensor
from mica.autograd.grad_mode import no_grad
from mica.nn import functional as F
from mica.nn.modules.module import Module
from mica.nn.utils import parametrize
from mica.nn.utils.spectral_norm import default_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

_ORTHOGONAL_MAPS = ("matrix_exp", "cayley", "householder")


def _require_tensor(module, name):
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def _is_orthogonal(matrix):
    rows, columns = matrix.shape[-2:]
    identity = _C.eye(columns, dtype=matrix.dtype, device=matrix.device)
    return _C.allclose(matrix.mH @ matrix, identity, atol=10.0 * rows * _C.finfo(matrix.dtype).eps)


def _make_orthogonal(matrix):
    """The orthogonal factor of the matrix, with the signs that make the triangular one's diagonal positive."""
    packed, tau = _C.geqrf(matrix)
    signs = packed.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
    return linalg.householder_product(packed, tau) * signs


class _Orthogonal(Module):
    """A matrix of orthonormal columns (or rows, if it is wide), as a function of any matrix of its shape.

    With trivialization it is `base` times the map, where base is the matrix that was assigned, so that the map is
    needed near the identity only.
    """

    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X):
        is_wide = X.size(-2) < X.size(-1)
        if is_wide:
            X = X.mT
        Q = self._from_reflections(X) if self.orthogonal_map == "householder" else self._from_skew(X)
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if is_wide else Q

    @staticmethod
    def _from_reflections(X):
        A = X.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (A * A).sum(dim=-2))
        # The diagonal holds signs.
        return linalg.householder_product(A, tau) * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    def _from_skew(self, X):
        rows, columns = X.shape[-2:]
        X = X.tril()
        if rows != columns:
            X = _C.cat([X, X.new_zeros(rows, rows - columns).expand(*X.shape[:-2], -1, -1)], dim=-1)
        A = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            Q = _C.matrix_exp(A)
        else:
            identity = _C.eye(rows, dtype=A.dtype, device=A.device)
            Q = linalg.solve(identity - 0.5 * A, identity + 0.5 * A)
        return Q[..., :columns] if rows != columns else Q

    @no_grad()
    def right_inverse(self, Q):
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        assigned = Q
        is_wide = Q.size(-2) < Q.size(-1)
        if is_wide:
            Q = Q.mT
        if not hasattr(self, "base"):
            return self._to_reflections(Q, is_wide)
        rows, columns = Q.shape[-2:]
        if rows != columns:
            others = _C.randn(*Q.shape[:-2], rows, rows - columns, dtype=Q.dtype, device=Q.device)
            Q = _make_orthogonal(_C.cat([Q, others], dim=-1))
        else:
            Q = Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        self.base = Q
        # In every map this stands for the identity, and `base` is what was assigned.
        minus_identity = _C.zeros_like(assigned)
        minus_identity.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return minus_identity

    def _to_reflections(self, Q, is_wide):
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                "use_trivialization=False."
            )
        A, tau = _C.geqrf(Q)
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        # Where nothing was reflected, the sign is that of the identity, not of a reflection.
        diagonal[tau == 0.0] *= -1
        return A.mT if is_wide else A


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Keep a matrix, or each of a batch, orthogonal; `orthogonal_map` is matrix_exp, cayley or householder."""
    weight = _require_tensor(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        is_square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if is_square or weight.is_complex() else "householder"
    if orthogonal_map not in _ORTHOGONAL_MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    parametrization = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, parametrization, unsafe=True)


class _WeightNorm(Module):
    """A weight as a length and a direction."""

    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return _C._weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return _C.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """Train the length and the direction of a parameter separately. There is one length for each index of `dim`."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename_older_keys(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        older = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in older):
            for i, key in enumerate(older):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename_older_keys)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, which power iterations estimate."""

    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        dims = weight.ndim
        if not -dims <= dim < dims:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{dims}, {dims - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + dims
        self.eps = eps
        if dims > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            u = matrix.new_empty(matrix.size(0)).normal_(0, 1)
            v = matrix.new_empty(matrix.size(1)).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight):
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    @no_grad()
    def _power_method(self, matrix, n_power_iterations):
        for _ in range(n_power_iterations):
            self._u = F.normalize(_C.mv(matrix, self._v), dim=0, eps=self.eps, out=self._u)
            self._v = F.normalize(_C.mv(matrix.H, self._u), dim=0, eps=self.eps, out=self._v)

    def forward(self, weight):
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # Copied, since the graph keeps them and the next iteration changes the buffers.
        u = self._u.clone(memory_format=_C.contiguous_format)
        v = self._v.clone(memory_format=_C.contiguous_format)
        return weight / _C.vdot(u, _C.mv(matrix, v))

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide a parameter by its largest singular value, which is estimated better with each call in training."""
    weight = _require_tensor(module, name)
    parametrization = _SpectralNorm(weight, n_power_iterations, default_dim(module) if dim is None else dim, eps)
    return parametrize.register_parametrization(module, name, parametrization)
