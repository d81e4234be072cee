"""What is said where out= has a dtype that an operation does not take: torch 2.13's words."""

import sys
from pathlib import Path

import mica as torch
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "codegen"))
import model
import out_dtypes
from schema import TableError

A = torch.tensor([[4.0, 1.0], [1.0, 3.0]])


def empty(dtype=torch.int32):
    return torch.empty(0, dtype=dtype)


STRUCTURED = "Expected out tensor to have dtype float, but got int instead"
CASES = {
    "mm": (lambda: torch.mm(A, A, out=empty()), STRUCTURED),
    "mm wider": (
        lambda: torch.mm(A, A, out=empty(torch.float64)),
        "Expected out tensor to have dtype float, but got double instead",
    ),
    "inv": (lambda: torch.linalg.inv(A, out=empty()), STRUCTURED),
    "inv_ex": (
        lambda: torch.linalg.inv_ex(A, out=(empty(torch.float32), empty(torch.int64))),
        "Expected out tensor to have dtype int, but got long int instead",
    ),
    "svdvals": (lambda: torch.linalg.svdvals(A, out=empty()), STRUCTURED),
    "cholesky": (
        lambda: torch.cholesky(A, out=empty()),
        "cholesky: Expected result to be safely castable from Float dtype, but got result with dtype Int",
    ),
    "eigvals": (
        lambda: torch.linalg.eigvals(A, out=empty()),
        "torch.linalg.eigvals: Expected eigenvalues to be safely castable from ComplexFloat dtype, but got eigenvalues with dtype Int",
    ),
    "ormqr": (
        lambda: torch.ormqr(A, torch.ones(2), A, out=empty()),
        "torch.ormqr: Expected input and result to have the same dtype, but input has dtypeFloat and result has dtype Int",
    ),
    "norm": (lambda: torch.linalg.norm(A, out=empty()), "linalg.norm expected out tensor dtype Float but got: Int"),
    "dot": (lambda: torch.dot(A[0], A[0], out=empty()), "result dtype Int does not match input dtype Float"),
    "cummax": (
        lambda: torch.cummax(A, 0, out=(empty(), empty(torch.int64))),
        "expected scalar_type Float but found Int",
    ),
    "logcumsumexp": (lambda: torch.logcumsumexp(A, 0, out=empty()), "expected scalar_type Float but found Int"),
    "add": (lambda: torch.add(A, A, out=empty()), "result type Float can't be cast to the desired output type Int"),
}


@pytest.mark.parametrize("name", CASES)
def test_words(name):
    call, words = CASES[name]
    with pytest.raises(RuntimeError) as error:
        call()
    assert words in str(error.value)


def test_out_that_can_hold_the_result():
    assert torch.cholesky(A, out=empty(torch.float64)).dtype is torch.float64
    assert torch.linalg.pinv(A, out=empty(torch.float64)).dtype is torch.float64


def test_weight_of_lerp():
    """One number is a number of any dtype; more of them have the dtype of the ends."""
    x = torch.ones(2, dtype=torch.float64)
    assert torch.lerp(x, x * 3, torch.tensor(0.5)).tolist() == [2.0, 2.0]
    assert torch.lerp(x.float(), x.float(), torch.tensor(0.5, dtype=torch.float64)).dtype is torch.float32
    with pytest.raises(RuntimeError, match="expected dtype double for `weight` but got dtype float"):
        torch.lerp(x, x, torch.ones(2))


def test_small_refusals():
    ones = torch.ones(2, dtype=torch.int32)
    with pytest.raises(RuntimeError, match="Boolean beta only supported for Boolean results"):
        torch.addr(torch.ones(2, 2, dtype=torch.int32), ones, ones, beta=True)
    with pytest.raises(RuntimeError, match='indexing must be one of "xy" or "ij"'):
        torch.meshgrid(ones, indexing="")
    words = r"requested resize to 2x3 \(6 elements in total\)"
    with pytest.warns(UserWarning, match="non-inplace resize"), pytest.raises(RuntimeError, match=words):
        A.resize(2, 3)


def test_compressed_copies_and_selections():
    a, b = A.to_sparse_csr(), torch.eye(2).to_sparse_csr()
    with pytest.raises(RuntimeError, match="having different layouts is not supported"):
        a.copy_(A)
    with pytest.raises(RuntimeError, match="same number of specified elements"):
        a.copy_(b)
    assert torch.equal(b.resize_as_sparse_(a).copy_(a).to_dense(), A) and b._nnz() == 4
    batched = torch.stack([A, A]).to_sparse_csr()
    with pytest.raises(RuntimeError, match="selecting sparse dimensions is not supported for batched"):
        batched.select(-1, 0)
    assert torch.equal(batched.select(0, 1).to_dense(), A)
    assert torch.angle(-a).values().tolist() == [3.1415927410125732] * 4


def test_indices_outside():
    """Rows are refused with an IndexError, other slices with a RuntimeError, as in torch."""
    for call, kind, words in (
        (
            lambda: torch.index_select(torch.ones(0, 3), 0, torch.tensor([0])),
            RuntimeError,
            "axis dim should be positive",
        ),
        (lambda: torch.index_select(A, 1, torch.tensor([4])), RuntimeError, "out of DATA bounds, id=4 axis_dim=2"),
        (lambda: torch.index_select(A, 0, torch.tensor([4])), IndexError, "index out of range in self"),
    ):
        with pytest.raises(kind, match=words):
            call()
    with pytest.raises(RuntimeError, match="memory format option is only supported by strided tensors"):
        torch.empty_like(A.to_sparse(), memory_format=torch.preserve_format)


def test_select_and_ormqr_name_what_is_wrong():
    with pytest.raises(
        IndexError, match=r"select\(\): index 5 out of range for tensor of size \[2, 2\] at dimension 1"
    ):
        A.select(1, 5)
    with pytest.raises(RuntimeError, match=r"torch.ormqr: other.shape\[-2\] must be equal to input.shape\[-2\]"):
        torch.ormqr(torch.ones(2, 4, 3), torch.ones(2, 2), torch.ones(2, 3, 10))


def test_the_table_refuses_a_rule_that_it_does_not_know():
    entry = {"schema": "twice(Tensor self) -> Tensor", "doc": "Twice."}
    assert model.read_entry("unary", entry | {"out_dtype": "structured"}).out_dtype.keys() == {"exact"}
    for wrong in ("structure", {"exact": "a", "castable": "b"}, {"near": "a"}):
        with pytest.raises(TableError, match="twice: out_dtype is one of"):
            model.read_entry("unary", entry | {"out_dtype": wrong})


def test_entries_of_one_name_have_one_rule():
    entry = {"schema": "twice(Tensor self) -> Tensor", "doc": "Twice."}
    rules = [model.read_entry("unary", entry | {"out_dtype": rule}) for rule in ("structured", "any")]
    assert '{"twice", OutDtypeRule::Any, ""}' in out_dtypes.generate(rules[1:])["src/out_dtypes.cpp"]
    with pytest.raises(TableError, match="twice: two entries of this name differ in out_dtype"):
        out_dtypes.generate(rules)
