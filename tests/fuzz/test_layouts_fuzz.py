"""Hostile arguments to sparse, quantized and named tensors and to linear algebra: an error or an answer, never a crash.

Whatever is accepted must also be usable: it is printed, copied and converted to its dense form.
"""

import random

import mica as torch
import pytest

ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, OverflowError, AssertionError)
NUMBERS = (0, 1, -1, 2, 3, 7, -(2**31), 2**31, -(2**63), 2**63 - 1)
FLOATS = (0.0, -1.0, 1e-45, 1e300, float("inf"), float("-inf"), float("nan"), 0.1)
DTYPES = (
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.bfloat16,
    torch.complex64,
    torch.uint8,
)


def used(tensor):
    """Does with a tensor what programs do."""
    repr(tensor)
    tensor.clone()
    if tensor.layout is not torch.strided:
        assert tensor.to_dense().shape == tensor.shape


def attempt(function, *args, **kwargs):
    try:
        made = function(*args, **kwargs)
    except ERRORS as error:
        assert str(error)
        return None
    used(made)
    return made


def integers(rng, shape, wild):
    count = 1
    for n in shape:
        count *= n
    pick = (lambda: rng.choice(NUMBERS)) if wild else (lambda: rng.randrange(4))
    return torch.tensor([pick() for _ in range(count)], dtype=torch.int64).reshape(shape)


@pytest.mark.parametrize("seed", range(60))
def test_sparse_constructors(seed):
    rng = random.Random(seed)
    nnz, dims = rng.randrange(4), rng.randrange(4)
    values = torch.ones(rng.choice([(nnz,), (nnz, 2), (nnz + 1,), (), (nnz, 0)]), dtype=rng.choice(DTYPES))
    size = tuple(rng.choice((0, 1, 4, 5, -1, 2**40)) for _ in range(rng.randrange(5)))
    wild = rng.random() < 0.5
    indices = integers(rng, (dims, nnz), wild).to(rng.choice((torch.int64, torch.int32, torch.float32)))
    options = {"check_invariants": rng.choice((None, True, False)), "is_coalesced": rng.choice((None, True, False))}
    small = all(n < 100 for n in size)
    if small:  # the dense form of others would not fit
        made = attempt(torch.sparse_coo_tensor, indices, values, size, **options)
        if made is not None:
            assert (made + made).coalesce().to_dense().shape == made.shape
    rows = integers(rng, (rng.randrange(6),), wild)
    columns = integers(rng, (nnz,), wild)
    layout = rng.choice((torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc))
    blocks = values if layout in (torch.sparse_csr, torch.sparse_csc) else torch.ones(nnz, rng.randrange(3), 2)
    if small:
        attempt(torch.sparse_compressed_tensor, rows, columns, blocks, size, layout=layout)


def test_indices_changed_behind_its_back():
    for name, wrong in (("col_indices", 9), ("col_indices", -1), ("crow_indices", 99), ("crow_indices", -5)):
        matrix = torch.eye(3).to_sparse_csr()
        getattr(matrix, name)()[1] = wrong
        for use in (lambda m: m @ torch.ones(3, 2), lambda m: m.to_dense(), lambda m: m.to_sparse_bsr((1, 1))):
            with pytest.raises(RuntimeError):
                use(matrix)


def test_block_sizes():
    matrix = torch.eye(4).to_sparse_csr()
    for size in ((0, 1), (-1, 2), (3, 3), (2**62, 2), (2,), (1, 2, 3), ()):
        with pytest.raises(ERRORS):
            matrix.to_sparse_bsr(size)


@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32, torch.float32, torch.int8])
def test_quantization_parameters(dtype):
    x = torch.tensor([[0.5, float("nan"), float("inf")], [-1e38, 1e-45, 3.0]])
    for scale in FLOATS:
        for zero in NUMBERS:
            attempt(torch.quantize_per_tensor, x, scale, zero, dtype)
            low, high = sorted((zero, 17))
            attempt(torch.fake_quantize_per_tensor_affine, x, scale, zero, low, high)
            for axis in (0, 1, 2, -3):
                attempt(torch.quantize_per_channel, x, torch.tensor([scale] * 2), torch.tensor([zero] * 2), axis, dtype)


def test_names_that_clash():
    for names in (("N", "N"), ("N",), ("N", "C", "H"), ("1x", "C"), ("", "C"), (None, 3)):
        with pytest.raises(ERRORS):
            torch.zeros(2, 3, names=names)
    a, b = torch.zeros(2, 3, names=("N", "C")), torch.zeros(2, 3, names=("C", "N"))
    with pytest.raises(RuntimeError, match="N"):
        a + b
    for use in (lambda: a.sum("H"), lambda: a.rename(X="Y"), lambda: a.align_to("C"), lambda: a.refine_names("C", "N")):
        with pytest.raises(ERRORS):
            use()
    assert a.names == ("N", "C")


SOLVERS = {
    "inv": torch.linalg.inv,
    "solve": lambda a: torch.linalg.solve(a, torch.ones(a.shape[-1], dtype=a.dtype)),
    "cholesky": torch.linalg.cholesky,
    "eigh": torch.linalg.eigh,
    "eig": torch.linalg.eig,
    "svd": torch.linalg.svd,
    "qr": torch.linalg.qr,
    "lu": torch.linalg.lu,
    "pinv": torch.linalg.pinv,
    "lstsq": lambda a: torch.linalg.lstsq(a, torch.ones(a.shape[-2], 1, dtype=a.dtype)),
    "det": torch.linalg.det,
    "matrix_exp": torch.linalg.matrix_exp,
    "matrix_rank": torch.linalg.matrix_rank,
    "cond": torch.linalg.cond,
    "ldl": torch.linalg.ldl_factor,
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_matrices_without_an_answer(solver):
    for n in (0, 1, 3, 12, 40):
        for fill in (0.0, float("nan"), float("inf"), 1e300, 5e-324):
            for dtype in (torch.float32, torch.float64, torch.complex128):
                for batch in ((), (9,)):
                    matrix = torch.full((*batch, n, n), fill, dtype=torch.float64).to(dtype)
                    try:
                        result = SOLVERS[solver](matrix)
                    except (RuntimeError, torch.linalg.LinAlgError) as error:
                        assert str(error)
                    else:
                        repr(result)
    for shape in ((3,), (3, 4), (0, 3), (2, 0, 0)):
        try:
            SOLVERS[solver](torch.ones(shape))
        except (RuntimeError, IndexError) as error:
            assert str(error)
