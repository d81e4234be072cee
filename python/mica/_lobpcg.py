"""Some of the eigenpairs of a large symmetric matrix (Knyazev's LOBPCG)."""

import mica as torch
from mica._functions.wrapping import asks_arguments as _asks


@_asks
def lobpcg(
    A,
    k=None,
    B=None,
    X=None,
    n=None,
    iK=None,
    niter=None,
    tol=None,
    largest=None,
    method=None,
    tracker=None,
    ortho_iparams=None,
    ortho_fparams=None,
    ortho_bparams=None,
):
    """The k largest (or smallest) eigenvalues of A, or of the pair A, B, and their vectors. A and B are applied to vectors
    by `@`. `X` are vectors to begin with, `iK` an approximate inverse of A. With gradients, all pairs are found."""
    m = A.shape[-1]
    if A.shape[-2] != m:
        raise ValueError(f"lobpcg: expected square matrices, but got {tuple(A.shape)}")
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg: method must be 'basic' or 'ortho', but got {method!r}")
    n = n if n is not None else k if X is None and k is not None else 1 if X is None else X.shape[-1]
    k = n if k is None else k
    largest = True if largest is None else largest
    if X is not None and (X.shape[-2] != m or X.shape[-1] != n):
        raise ValueError(f"lobpcg: expected X with {m} rows and {n} columns, but got {tuple(X.shape)}")
    if m < 3 * n:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of "
            f"requested eigenpairs (={n})"
        )
    if torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in (A, B)):
        return _dense(A, B, k, largest)
    dtype = A.dtype if A.dtype in (torch.float32, torch.float64) else torch.get_default_dtype()
    tol = tol if tol is not None else {torch.float32: 1.2e-07, torch.float64: 2.23e-16}[dtype] ** 0.5
    niter = 1000 if niter is None else niter
    if A.dim() == 2:
        X = torch.randn(m, n, dtype=dtype, device=A.device) if X is None else X
        return _Search(A, B, X, iK, tol, largest, tracker).run(niter, k)
    batch = A.shape[:-2]
    flat = A.reshape(-1, m, m)
    starts = torch.randn(flat.shape[0], m, n, dtype=dtype, device=A.device) if X is None else X.reshape(-1, m, n)
    others = [None] * flat.shape[0] if B is None else B.expand(A.shape).reshape(-1, m, m)
    inverses = [None] * flat.shape[0] if iK is None else iK.expand(A.shape).reshape(-1, m, m)
    found = [
        _Search(a, b, x, i, tol, largest, tracker).run(niter, k)
        for a, b, x, i in zip(flat, others, starts, inverses, strict=True)
    ]
    values, vectors = (torch.stack(parts) for parts in zip(*found, strict=True))
    return values.reshape(*batch, k), vectors.reshape(*batch, m, k)


def _dense(A, B, k, largest):
    if B is None:
        values, vectors = torch.linalg.eigh((A + A.mT) / 2)
    else:
        L = torch.linalg.cholesky((B + B.mT) / 2)
        half = torch.linalg.solve_triangular(L, (A + A.mT) / 2, upper=False)
        C = torch.linalg.solve_triangular(L, half.mT, upper=False)
        values, inner = torch.linalg.eigh((C + C.mT) / 2)
        vectors = torch.linalg.solve_triangular(L.mT, inner, upper=True)
    if largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[..., :k], vectors[..., :k]


class _Search:
    """One matrix. Every step searches the space of the vectors, their residuals and the last directions."""

    def __init__(self, A, B, X, iK, tol, largest, tracker):
        self.A, self.B, self.iK, self.tol, self.largest, self.tracker = A, B, iK, tol, largest, tracker
        self.X = X.to(X.dtype)
        self.istep = 0

    def through_B(self, S):
        return S if self.B is None else self.B @ S

    def orthonormal(self, S):
        """A basis of the range of S that is orthonormal under B. Directions that only come from rounding are left out."""
        for _ in range(2):
            S = S / S.norm(dim=0).clamp_min(torch.finfo(S.dtype).tiny)
            gram = S.mT @ self.through_B(S)
            values, vectors = torch.linalg.eigh((gram + gram.mT) / 2)
            kept = values > values[-1] * torch.finfo(S.dtype).eps * 10 * S.shape[1]
            S = (S @ vectors[:, kept]) / values[kept].sqrt()
        return S

    def best(self, S, count):
        """Rayleigh and Ritz: the best vectors in the range of an orthonormal S."""
        inner = S.mT @ (self.A @ S)
        values, vectors = torch.linalg.eigh((inner + inner.mT) / 2)
        if self.largest:
            values, vectors = values.flip(-1), vectors.flip(-1)
        return values[:count], vectors[:, :count]

    def run(self, niter, k):
        with torch.no_grad():
            n = self.X.shape[1]
            S = self.orthonormal(self.X)
            self.E, Z = self.best(S, n)
            self.X = S @ Z
            P = None
            for self.istep in range(1, niter + 1):
                self.R = self.A @ self.X - self.through_B(self.X) * self.E
                scale = (self.A @ self.X).norm(dim=0) + self.E.abs() * self.through_B(self.X).norm(dim=0)
                self.rerr = self.R.norm(dim=0) / scale.clamp_min(torch.finfo(self.X.dtype).tiny)
                if self.tracker is not None:
                    self.tracker(self)
                if bool((self.rerr[:k] < self.tol).all()):
                    break
                W = self.R if self.iK is None else self.iK @ self.R
                parts = [self.X, W] if P is None else [self.X, W, P]
                S = self.orthonormal(torch.cat(parts, dim=1))
                self.E, Z = self.best(S, n)
                new = S @ Z
                # The part of the step that lies outside of the vectors before it.
                P = new - self.X @ (self.X.mT @ self.through_B(new))
                self.X = new
            return self.E[:k], self.X[:, :k]
