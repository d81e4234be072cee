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
    with pytest.raises(RuntimeError, match="_coalesce expected sparse coordinate tensor layout but got Strided"):
        torch._coalesce(torch.ones(3))  # it ended the process


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


def test_complex_numbers_and_their_parts():
    x = torch.sparse_coo_tensor([[0, 2]], torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (3, 2), requires_grad=True)
    z = torch.view_as_complex(x)
    assert z.shape == (3,) and z._values().tolist() == [1 + 2j, 3 + 4j] and z._indices().tolist() == [[0, 2]]
    back = torch.view_as_real(z)
    assert back.shape == (3, 2) and torch.equal(back.to_dense(), x.to_dense())
    (z * 2j).to_dense().abs().sum().backward()
    torch.testing.assert_close(x.grad.to_dense()[0], torch.tensor([2.0, 4.0]) / 5**0.5)
    for wrong in (torch.sparse_coo_tensor([[0, 2], [0, 1]], [1.0, 2.0], (3, 2)), torch.ones(2, 3).to_sparse(1)):
        with pytest.raises(RuntimeError, match="sparse tensors with the last dim == 2 and dense_dim > 0"):
            torch.view_as_complex(wrong)
    with pytest.raises(RuntimeError, match="view_as_real"):
        torch.view_as_real(torch.ones(2, 2, dtype=torch.complex64).to_sparse_csr())


def test_a_number_of_one_part_is_the_factor():
    one = torch.tensor(True).to_sparse()
    many = torch.sparse_coo_tensor(torch.zeros(0, 10, dtype=torch.int64), torch.ones(10, dtype=torch.uint8), ())
    for product in (many * one, one * many):
        assert product._nnz() == 10 and not product.is_coalesced() and product.to_dense() == 10


def test_other_layouts_are_not_joined():
    x = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="but a dense tensor was found at position 1."):
        torch.cat([x.to_sparse(), x])
    with pytest.raises(RuntimeError, match="a tensor of layout torch.sparse_csr was found"):
        torch.cat([x.to_sparse(), x.to_sparse_csr()])


def test_parts_of_compressed_tensors_whose_size_is_left_out():
    numbers = torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 2]), torch.ones(4)
    make = torch.sparse_csr_tensor
    assert make(*numbers).shape == (2, 3)
    with pytest.raises(RuntimeError, match="crow_indices must have dimensionality >= 1 but got 0"):
        make(torch.tensor(0), *numbers[1:])
    with pytest.raises(
        RuntimeError, match="crow_indices and col_indices dimensionalities must be equal but got 2 and 1"
    ):
        make(numbers[0][None], *numbers[1:])
    with pytest.raises(RuntimeError, match=r"sum of batch and block dimensionalities \(=0 \+ 0\) but got 0"):
        make(*numbers[:2], torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="dtype must be Int or Long, but got Short"):
        make(numbers[0].short(), numbers[1].short(), numbers[2])
    with pytest.raises(RuntimeError, match="must have the same dtype, bot got Int and Long, respectively"):
        make(numbers[0].int(), *numbers[1:])


def test_indices_in_their_other_form():
    pointers = torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 2]), 4)
    assert pointers.tolist() == [0, 2, 2, 3, 3] and pointers.dtype == torch.int64
    assert torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 2]), 4, out_int32=True).dtype == torch.int32
    assert torch._convert_indices_from_coo_to_csr(torch.tensor([], dtype=torch.int64), 2).tolist() == [0, 0, 0]
    assert torch.ops.aten._convert_indices_from_coo_to_csr(torch.tensor([1]), 2).tolist() == [0, 0, 1]
    to_coo = torch._convert_indices_from_csr_to_coo
    assert to_coo(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 2])).tolist() == [[0, 0, 2], [0, 1, 2]]
    turned = to_coo(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 2]), out_int32=True, transpose=True)
    assert turned.tolist() == [[0, 1, 2], [0, 0, 2]] and turned.dtype == torch.int32
    batch = to_coo(torch.tensor([[0, 2, 2, 3], [0, 1, 1, 3]]), torch.tensor([[0, 1, 2], [1, 0, 1]]))
    assert batch.tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 2, 0, 2, 2], [0, 1, 2, 1, 0, 1]]
    with pytest.raises(RuntimeError, match="do not count 3 col_indices"):
        to_coo(torch.tensor([0, 2, 2, 2]), torch.tensor([0, 1, 2]))
    with pytest.raises(RuntimeError, match="supposed to be a vector"):
        torch._convert_indices_from_coo_to_csr(torch.tensor([[0]]), 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_of_16_bits_are_rounded_once(dtype):
    """Values of one place stood still where each sum was rounded: 256 in the place of 2,500."""
    x = torch.sparse_coo_tensor(torch.zeros(1, 5000, dtype=torch.int64), torch.full((5000,), 0.5, dtype=dtype), (2,))
    for dense in (
        x.to_dense(),
        torch.zeros(2, dtype=dtype) + x,
        torch.zeros(2, dtype=dtype).add_(x),
        x.coalesce().to_dense(),
    ):
        assert dense.dtype == dtype and dense.tolist() == [2496.0 if dtype == torch.bfloat16 else 2500.0, 0.0]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_bags_of_16_bits_are_those_of_embeddings(mode, sparse):
    torch.manual_seed(0)
    index, offsets = torch.randint(3, (50, 20)), torch.arange(0, 1000, 20)
    rows, seed = torch.randn(3, 8), torch.rand(50, 8).bfloat16()
    gradients = []
    for dtype in (torch.bfloat16, torch.float64):
        weight = rows.to(dtype, copy=True).requires_grad_()
        torch.nn.functional.embedding_bag(index.view(-1), weight, offsets, mode=mode, sparse=sparse).backward(
            seed.to(dtype)
        )
        gradients.append(weight.grad.to_dense().double())
    torch.testing.assert_close(*gradients, rtol=2**-7, atol=0)
