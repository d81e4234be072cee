"""Eigenvalues and eigenvectors of general matrices, of every kind that an iteration may stumble over."""

import mica
import numpy as np
import pytest
from linalg_checks import make
from mica import linalg

DTYPES = (mica.float32, mica.float64, mica.complex64, mica.complex128)
SIZES = (1, 2, 3, 4, 5, 9, 17, 32, 81, 100)  # up to 80 rows one shift at a time, beyond in chains


def noise(n, seed, complex_):
    r = np.random.default_rng(seed)
    return r.standard_normal((n, n)) + (1j * r.standard_normal((n, n)) if complex_ else 0)


def companion(n, a):
    c = np.diag(np.ones(n - 1), -1).astype(a.dtype)
    c[0] = a[0] / 4
    return c


def jordan(n, a):
    return 2 * np.eye(n) + np.diag(np.ones(n - 1), 1) + 0 * a


def jordan_blocks(n, a):
    j = np.diag(np.where(np.arange(n) % 8 < 4, 1.0, -3.0)) + np.diag((np.arange(n - 1) % 4 < 3).astype(float), 1)
    q = np.linalg.qr(a)[0]
    return q @ j @ q.conj().T


def rotations(n, a):
    return np.linalg.qr(a)[0]


def cycle(n, a):
    return np.roll(np.eye(n), 1, 0) + 0 * a


def scaled(n, a):
    size = 10.0 ** np.linspace(-8, 8, n)
    return a * size[:, None] / size[None, :]


def graded(n, a):
    size = 10.0 ** -np.linspace(0, 12, n)
    return a * np.minimum.outer(size, size)


def nearly_singular(n, a):
    low = a[:, : max(1, n // 3)]
    return low @ low.conj().T[:, ::-1] + 1e-7 * a


def triangular_with_equal(n, a):
    return np.triu(a, 1) + np.diag(np.arange(n) // 3)


def defective_blocks(n, a):  # real 2 x 2 blocks that repeat, coupled
    q = np.kron(np.eye((n + 1) // 2), np.array([[1.0, 2.0], [-2.0, 1.0]]))[:n, :n]
    return q + np.diag(np.ones(max(0, n - 2)), 2)[:n, :n] + 0 * a


def arrow(n, a):
    b = np.diag(np.arange(n, dtype=float)) + 0 * a
    b[0], b[:, 0] = a[0], a[:, 0]
    return b


def parts(n, a):  # balancing finds a permutation
    b = a * (np.arange(n)[:, None] // 7 <= np.arange(n)[None, :] // 7)
    order = np.random.default_rng(1).permutation(n)
    return b[order][:, order]


KINDS = {
    "random": lambda n, a: a,
    "uniform": lambda n, a: np.abs(a),
    "symmetric": lambda n, a: a + a.conj().T,
    "definite": lambda n, a: a @ a.conj().T + n * np.eye(n),
    "skew": lambda n, a: a - a.conj().T,
    "zero": lambda n, a: 0 * a,
    "identity": lambda n, a: np.eye(n) + 0 * a,
    "upper": lambda n, a: np.triu(a),
    "lower": lambda n, a: np.tril(a),
    "hessenberg": lambda n, a: np.triu(a, -1),
    "rank_one": lambda n, a: np.outer(a[0], a[:, 0]),
    "large": lambda n, a: a * 1e18,
    "small": lambda n, a: a * 1e-18,
    "equal": lambda n, a: np.ones((n, n)) + 0 * a,
} | {
    f.__name__: f
    for f in (companion, jordan, jordan_blocks, rotations, cycle, scaled, graded, nearly_singular)
    + (triangular_with_equal, defective_blocks, arrow, parts)
}
NORMAL = ("symmetric", "definite", "skew", "rotations", "cycle", "identity")  # small errors move their values little


def check(a, values, vectors):
    """The vectors have length 1 and A v = w v, to what LAPACK's own tests ask for: 30 units times n and the norm."""
    n = a.shape[-1]
    unit = np.finfo(a.real.dtype).eps
    a = a.astype(np.complex128)
    values, vectors = values.astype(np.complex128), vectors.astype(np.complex128)
    norm = np.abs(a).sum(-2).max(-1) if n else 0.0
    assert np.isfinite(values).all() and np.isfinite(vectors).all()
    assert np.abs(np.linalg.norm(vectors, axis=-2) - 1).max(initial=0) <= 10 * n * unit
    assert np.abs(a @ vectors - vectors * values[..., None, :]).sum(-2).max(initial=0) <= 30 * n * unit * norm
    assert abs(values.sum() - np.trace(a)) <= 30 * n * unit * norm


def as_sets(a, b):
    """The greatest distance between two sets of numbers, each one of the first with the nearest left of the second."""
    distances = np.abs(np.asarray(a)[:, None] - np.asarray(b)[None, :])
    most = 0.0
    for row in distances:
        nearest = int(row.argmin())
        most = max(most, float(row[nearest]))
        distances[:, nearest] = np.inf
    return most


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_matrix(kind, dtype):
    for n in SIZES:
        made = KINDS[kind](n, noise(n, n, dtype.is_complex))
        a = mica.tensor(made).to(dtype)
        values, vectors = linalg.eig(a)
        check(a.numpy(), values.numpy(), vectors.numpy())
        alone = linalg.eigvals(a).numpy()
        assert np.isfinite(alone).all()
        norm = np.linalg.norm(made)
        unit = np.finfo(a.real.numpy().dtype).eps
        if kind in NORMAL:
            exact = np.linalg.eigvals(a.numpy().astype(np.complex128))
            assert as_sets(values.numpy(), exact) <= 30 * n * unit * norm
            assert as_sets(alone, exact) <= 30 * n * unit * norm
        if not dtype.is_complex:  # conjugate ones come in pairs, the upper one first
            pairs = values.numpy()[values.numpy().imag != 0]
            assert (pairs[::2] == pairs[1::2].conj()).all() and (pairs[::2].imag > 0).all()


@pytest.mark.parametrize("n", (4, 32, 128, 257))
def test_values_are_those_of_lapack(n):
    for seed in range(4):
        a = noise(n, seed, False)
        exact = np.linalg.eigvals(a)
        assert as_sets(linalg.eigvals(mica.tensor(a)).numpy(), exact) <= 1e-10 * n
        assert as_sets(linalg.eig(mica.tensor(a))[0].numpy(), exact) <= 1e-10 * n


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batches_and_layouts(dtype):
    a = make(3, 2, 40, 40, dtype=dtype)
    for given in (a, a.mT, a[:, :, ::2, ::2], a[:, :1].expand(3, 2, 40, 40), a.transpose(0, 1)):
        values, vectors = linalg.eig(given)
        assert values.shape == given.shape[:-1] and vectors.shape == given.shape
        for i in range(given.shape[0]):
            for j in range(given.shape[1]):
                check(given[i, j].numpy(), values[i, j].numpy(), vectors[i, j].numpy())
    for shape in ((0, 0), (0, 40, 40), (3, 0, 0)):
        values, vectors = linalg.eig(make(*shape, dtype=dtype))
        assert values.shape == shape[:-1] and vectors.shape == shape
        assert linalg.eigvals(make(*shape, dtype=dtype)).shape == shape[:-1]


def test_a_large_matrix_on_several_threads():
    before = mica.get_num_threads()
    try:
        mica.set_num_threads(3)
        a = make(300, 300)
        check(a.numpy(), *(x.numpy() for x in linalg.eig(a)))
    finally:
        mica.set_num_threads(before)


def test_gradients_of_what_the_library_does_not_compute():
    a = make(36, 36).requires_grad_()
    linalg.eigvals(a).abs().sum().backward()
    step = make(36, 36, seed=1) * 1e-6
    with mica.no_grad():
        change = linalg.eigvals(a + step).abs().sum() - linalg.eigvals(a - step).abs().sum()
    assert abs(float((a.grad * step).sum() * 2 - change)) <= 1e-4 * abs(float(change))
    a.grad = None
    linalg.eig(a)[1].abs().sum().backward()
    with mica.no_grad():
        change = linalg.eig(a + step)[1].abs().sum() - linalg.eig(a - step)[1].abs().sum()
    assert abs(float((a.grad * step).sum() * 2 - change)) <= 1e-4 * abs(float(change)) + 1e-8
