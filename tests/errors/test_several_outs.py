"""out= of operations with several results: as many tensors as there are results, in a tuple or a list. Words are torch 2.13's."""

import mica as torch
import pytest


def empty(dtype=torch.float32):
    return torch.empty(0, dtype=dtype)


X = torch.tensor([[3.0, -1.0], [0.5, 8.0]])
CALLS = {
    "frexp": (lambda out: torch.frexp(X, out=out), (torch.float32, torch.int32)),
    "max": (lambda out: torch.max(X, 0, out=out), (torch.float32, torch.int64)),
    "sort": (lambda out: torch.sort(X, out=out), (torch.float32, torch.int64)),
    "linalg.qr": (lambda out: torch.linalg.qr(X, out=out), (torch.float32, torch.float32)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_list_is_a_tuple(name):
    call, dtypes = CALLS[name]
    for kind in (tuple, list):
        given = kind(empty(dtype) for dtype in dtypes)
        made = call(given)
        assert all(a is b for a, b in zip(made, given, strict=True)) and given[0].numel() == call(None)[0].numel()
        assert all(torch.equal(a, b) for a, b in zip(given, call(None), strict=True))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("kind", [tuple, list])
def test_another_number_of_tensors_is_refused(name, count, kind):
    with pytest.raises(TypeError, match=f"expected tuple of 2 elements but got {count}"):
        CALLS[name][0](kind(empty() for _ in range(count)))


def test_what_is_no_list_of_tensors_is_refused():
    for wrong in ([empty(), None], (empty(), 1), empty(), "ab"):
        with pytest.raises(TypeError):
            torch.frexp(X, out=wrong)
    with pytest.raises(TypeError, match="argument 'out' must be Tensor, not list"):
        torch.add(X, X, out=[empty()])


def test_memory_formats_of_cpu():
    x = torch.randn(2, 3, 4, 5)
    last = x.cpu(memory_format=torch.channels_last)
    assert last.stride() == (60, 1, 15, 3) and torch.equal(last, x)
    assert last.cpu(memory_format=torch.contiguous_format).stride() == (60, 20, 5, 1)
    assert all(x.cpu(**given) is x for given in ({}, {"memory_format": None}, {"memory_format": torch.preserve_format}))
    with pytest.raises(TypeError):
        x.cpu(torch.channels_last)
