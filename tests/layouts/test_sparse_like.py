"""zeros_like and its kin on sparse tensors, and functions of tensors whose indices repeat."""

import mica as torch
import pytest

LAYOUTS = {name: getattr(torch, f"sparse_{name}") for name in ("coo", "csr", "csc", "bsr", "bsc")}
DENSE = torch.tensor([[1.0, 0, 2.0, 0], [0, 0, 3.0, 1.0]])


def sparse(name):
    return DENSE.to_sparse(layout=LAYOUTS[name], blocksize=(1, 2) if name[0] == "b" else None)


def blocked(name):
    return name[0] == "b"


@pytest.mark.parametrize("wanted", LAYOUTS)
@pytest.mark.parametrize("own", LAYOUTS)
def test_zeros_like_takes_the_layout(own, wanted):
    x = sparse(own)
    if wanted != "coo" and blocked(wanted) != blocked(own):
        with pytest.raises(RuntimeError, match="sparse_compressed_tensor_with_dims: blocksize"):
            torch.zeros_like(x, layout=LAYOUTS[wanted])
        return
    made = torch.zeros_like(x, layout=LAYOUTS[wanted])
    assert made.layout == LAYOUTS[wanted] and made._nnz() == 0 and made.shape == x.shape
    assert torch.equal(made.to_dense(), torch.zeros(2, 4))


def test_empty_like_keeps_compressed_layouts():
    for own in ("csr", "csc", "bsr", "bsc"):
        for other in (torch.strided, *(layout for name, layout in LAYOUTS.items() if name != own)):
            for make in (torch.empty_like, torch.ones_like, torch.randn_like):
                with pytest.raises(RuntimeError, match="empty_like with different sparse layout is not supported"):
                    make(sparse(own), layout=other)
    assert torch.empty_like(sparse("coo"), layout=torch.sparse_csc).layout == torch.sparse_csc
    assert torch.ones_like(sparse("coo"), layout=torch.strided).layout == torch.strided


@pytest.mark.parametrize("name", ["csr", "csc", "bsr", "bsc"])
def test_values_of_compressed_tensors_are_filled(name):
    x = sparse(name)
    drawn = torch.randn_like(x)
    assert drawn.layout == x.layout and drawn._nnz() == x._nnz() and drawn.values().abs().sum() > 0
    full = torch.full_like(x, 3.0)
    assert full.layout == x.layout and (full.values() == 3).all()


@pytest.mark.parametrize(
    "name", ["square", "sqrt", "log1p", "sin", "tanh", "relu", "sign", "isnan", "erfinv", "nan_to_num"]
)
def test_functions_of_indices_that_repeat(name):
    x = torch.sparse_coo_tensor([[0, 0, 2]], [0.25, 0.5, 0.125], (3,))
    torch.testing.assert_close(getattr(torch, name)(x).to_dense(), getattr(torch, name)(x.to_dense()))


def test_linear_functions_keep_indices_that_repeat():
    x = torch.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, 3.0], (3,))
    assert (-x)._nnz() == 3 and not (-x).is_coalesced()


def test_an_element_has_the_dtype():
    for x in (
        torch.tensor([[0, 3, 2]], dtype=torch.int16).to_sparse(),
        torch.tensor([[0, 3, 2]], dtype=torch.int16).to_sparse_csr(),
    ):
        assert x[0, 0].dtype == torch.int16 and x[0, 1].item() == 3


def test_messages_name_layouts_as_torch_does():
    with pytest.raises(RuntimeError, match="coalesce expected sparse coordinate tensor layout but got SparseCsr"):
        sparse("csr").coalesce()
    with pytest.raises(
        RuntimeError, match="row_indices expected sparse column compressed tensor layout but got SparseCsr"
    ):
        sparse("csr").row_indices()


def test_factories_of_sparse_tensors():
    for make in (torch.zeros, torch.empty):
        for name in ("coo", "csr", "csc"):
            made = make(2, 3, layout=LAYOUTS[name], dtype=torch.float64)
            assert made.layout == LAYOUTS[name] and made.dtype == torch.float64 and made._nnz() == 0
            assert torch.equal(made.to_dense(), torch.zeros(2, 3, dtype=torch.float64))
        with pytest.raises(RuntimeError, match="non-block"):
            make(2, 3, layout=torch.sparse_bsr)
    assert DENSE.to_sparse().new_zeros(2, 2).layout == torch.sparse_coo
    assert DENSE.to_sparse_csr().new_empty(2, 2).layout == torch.sparse_csr
    assert torch.zeros(2, layout=torch.sparse_coo, requires_grad=True).requires_grad


def test_conversions_that_torch_has():
    assert (
        sparse("bsr").to_sparse().is_coalesced()
        and sparse("coo").to_sparse(layout=torch.strided).layout == torch.strided
    )
    for own, wanted, given, words in (
        ("csr", "bsr", {}, "without blocksize argument given"),
        ("coo", "csr", {"blocksize": (1, 2)}, "with blocksize argument given"),
        ("csr", "csc", {"dense_dim": 0}, "with dense_dim argument given"),
    ):
        with pytest.raises(RuntimeError, match=words):
            sparse(own).to_sparse(layout=LAYOUTS[wanted], **given)


def test_small_things_of_coo_tensors():
    x = sparse("coo")
    assert x.stride() == (0, 0) and not x.is_contiguous()
    assert torch.equal((torch.tensor(3.0).to_sparse() * x).to_dense(), DENSE * 3)
    assert torch.equal((torch.zeros(2, 4, layout=torch.sparse_coo) + DENSE.to_sparse(1)).to_dense(), DENSE)
    z = torch.tensor([1j, 2.0]).to_sparse()
    assert z.conj().to_dense().tolist() == [-1j, 2]
    for each in (x, sparse("csr")):
        with pytest.raises(TypeError, match="Cannot assign to a sparse tensor"):
            each[0] = 1
