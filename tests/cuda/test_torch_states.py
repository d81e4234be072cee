"""State that differed and calls that were not refused until torch's own tests found them, on both devices."""

import gc
import weakref

import mica
import pytest

NO_GPU = pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, NO_GPU])]
pytestmark = pytest.mark.parametrize("device", DEVICES)


def test_bytes_read_as_another_dtype_have_no_history(device):
    x = mica.ones(2, device=device, requires_grad=True)
    for dtype in (mica.int32, mica.complex64):
        seen = x.view(dtype)
        assert not seen.requires_grad and seen.grad_fn is None
    y = mica.ones(4, device=device)
    y.view(mica.int32).zero_()
    assert y.tolist() == [0] * 4 and y._version == 1


def test_views_of_inference_tensors(device):
    with mica.inference_mode():
        x = mica.ones(3, device=device)
    view = x[1:]
    assert view.is_inference() and not view.requires_grad and view.grad_fn is None
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        view.add_(1)
    assert x.tolist() == [1, 1, 1]


def test_a_clone_of_a_sparse_tensor_is_as_coalesced_as_it(device):
    x = mica.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, 3.0], (3,), device=device)
    assert not x.clone().is_coalesced() and x.coalesce().clone().is_coalesced()


def test_hooks_run_in_their_order_until_they_are_removed(device):
    x = mica.ones(2, device=device, requires_grad=True)
    y, calls = x * 2, []
    handles = [y.register_hook(lambda grad, i=i: calls.append(i)) for i in range(3)]
    handles[1].remove()
    leaf = x.register_hook(lambda grad: grad * 10)
    y.sum().backward(retain_graph=True)
    assert calls == [0, 2] and x.grad.tolist() == [20, 20]
    leaf.remove()
    y.sum().backward()
    assert calls == [0, 2, 0, 2] and x.grad.tolist() == [22, 22]


def test_a_storage_dies_with_its_last_tensor(device):
    x = mica.ones(4, device=device)
    seen = weakref.ref(x.untyped_storage())
    view = x[1:]
    del x
    gc.collect()
    assert seen() is view.untyped_storage()
    del view
    gc.collect()
    assert seen() is None


def test_memory_that_is_read_and_written(device):
    x = mica.arange(6, device=device)
    ones = mica.tensor([1, 2], device=device)
    for call in (lambda: x.put_(x[:2], ones), lambda: x.index_fill_(0, x[1:2], 1), lambda: x.expand(2, 6).put_(ones, ones)):  # fmt: skip
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert x.tolist() == list(range(6))
    mask = mica.tensor([True, False, True], device=device)
    with pytest.warns(UserWarning, match="masked_fill_ on expanded tensors"):
        assert mica.zeros(1, device=device).expand(3).masked_fill_(mask, 1.0).tolist() == [1] * 3


def test_storages_are_not_left(device):
    storage = mica.arange(4.0, device=device).untyped_storage()
    with pytest.raises(RuntimeError, match="[Oo]ut of bounds|offset|negative"):
        mica.empty(0, device=device).set_(storage, -1, (2,), (1,))
    x = mica.ones(4, device=device)
    with pytest.raises(RuntimeError, match="out of bounds"):
        mica.as_strided(x, (5,), (1,))


@pytest.mark.parametrize("name", ["neg", "floor", "round", "sign", "abs"])
def test_results_are_not_converted_into_out(device, name):
    function, x = getattr(mica, name), mica.ones(2, device=device)
    with pytest.raises(RuntimeError, match="Found dtype Double but expected Float"):
        function(x, out=mica.empty(2, dtype=mica.float64, device=device))
    with pytest.raises(RuntimeError, match="scalar type Long|Long"):
        mica.nonzero(x, out=mica.empty(0, device=device))


def test_a_tensor_that_a_graph_holds_is_not_swapped(device):
    a, b = mica.ones(2, device=device, requires_grad=True), mica.zeros(2, device=device)
    held = a * a
    with pytest.raises(RuntimeError):
        mica.utils.swap_tensors(a, b)
    assert a.tolist() == [1, 1]
    held.sum().backward()
    assert a.grad.tolist() == [2, 2]


def test_sparse_complex_numbers_and_their_parts(device):
    x = mica.sparse_coo_tensor([[0, 2]], mica.tensor([[1.0, 2.0], [3.0, 4.0]]), (3, 2), device=device)
    z = mica.view_as_complex(x)
    assert z.device == x.device and z._values().tolist() == [1 + 2j, 3 + 4j] and z._indices().tolist() == [[0, 2]]
    assert mica.equal(mica.view_as_real(z).to_dense(), x.to_dense())


def test_sparse_numbers_in_any_order(device):
    one = mica.tensor(True, device=device).to_sparse()
    places = mica.zeros(0, 10, dtype=mica.int64, device=device)
    many = mica.sparse_coo_tensor(places, mica.ones(10, dtype=mica.uint8, device=device), ())
    for product in (many * one, one * many):
        assert product._nnz() == 10 and product.to_dense() == 10


def test_indices_in_their_other_form(device):
    rows = mica.tensor([0, 0, 2], device=device)
    pointers = mica._convert_indices_from_coo_to_csr(rows, 4)
    assert pointers.device == rows.device and pointers.tolist() == [0, 2, 2, 3, 3]
    columns = mica.tensor([0, 1, 2], device=device)
    found = mica._convert_indices_from_csr_to_coo(pointers, columns)
    assert found.device == rows.device and found.tolist() == [[0, 0, 2], [0, 1, 2]]
