"""Decompositions of low rank from products with random matrices (Halko, Martinsson and Tropp, 2009)."""

import mica as torch
from mica._functions.wrapping import asks_arguments as _asks


def get_approximate_basis(A, q, niter=2, M=None):
    """An orthonormal basis, of q columns, of most of the range of A - M."""
    niter = 2 if niter is None else niter

    def product(left, right, of_M):
        result = torch.matmul(left, right)
        return result if M is None else result - torch.matmul(of_M, right)

    dtype = A.dtype if A.is_complex() or A.dtype in (torch.float32, torch.float64) else torch.get_default_dtype()
    R = torch.randn(A.shape[-1], q, dtype=dtype, device=A.device)
    A_H, M_H = A.mH, None if M is None else M.mH
    Q = torch.linalg.qr(product(A, R, M)).Q
    for _ in range(niter):
        Q = torch.linalg.qr(product(A_H, Q, M_H)).Q
        Q = torch.linalg.qr(product(A, Q, M)).Q
    return Q


@_asks
def svd_lowrank(A, q=6, niter=2, M=None):
    """U, S and V of a decomposition of rank q that is close to A - M."""
    q = 6 if q is None else q
    m, n = A.shape[-2:]
    if M is not None:
        M = M.broadcast_to(A.size())
    if m < n:
        A, M = A.mH, None if M is None else M.mH
    Q = get_approximate_basis(A, q, niter=niter, M=M)
    B = torch.matmul(Q.mH, A)
    if M is not None:
        B = B - torch.matmul(Q.mH, M)
    U, S, Vh = torch.linalg.svd(B, full_matrices=False)
    U, V = torch.matmul(Q, U), Vh.mH
    return (V, S, U) if m < n else (U, S, V)


@_asks
def pca_lowrank(A, q=None, center=True, niter=2):
    """Principal components: `svd_lowrank` of the rows of A, less their mean where `center` says so."""
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not (q >= 0 and q <= min(m, n)):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if not niter >= 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    if center:
        A = A - A.mean(dim=-2, keepdim=True)
    return svd_lowrank(A, q, niter=niter, M=None)
