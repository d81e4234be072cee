"""associative_scan: a function of two elements, which are the tensors without the dimension that is scanned."""

import mica as torch
import pytest
from mica._higher_order_ops import associative_scan


def _one_by_one(combine, x, dim):
    rows = list(x.unbind(dim))
    for i in range(1, len(rows)):
        rows[i] = combine(rows[i - 1], rows[i])
    return torch.stack(rows, dim)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_elements_are_what_is_left_without_the_dimension(dim):
    torch.manual_seed(0)
    x = torch.rand(3, 3, 3)

    def products(a, b):
        return a @ b

    made = associative_scan(products, x, dim, combine_mode="generic")
    assert torch.allclose(made, _one_by_one(products, x, dim))
    made = associative_scan(products, x, dim, reverse=True, combine_mode="generic")
    assert torch.allclose(made, _one_by_one(products, x.flip(dim), dim).flip(dim))


def test_a_function_may_name_dimensions_of_an_element():
    x = torch.rand(5, 4)

    def larger(a, b):
        return torch.where(a.sum(0) > b.sum(0), a, b)

    made = associative_scan(larger, x, 0, combine_mode="generic")
    assert torch.equal(made, _one_by_one(larger, x, 0))


def test_tensors_of_other_numbers_of_dimensions():
    x, y = torch.rand(4, 3), torch.rand(4)
    made = associative_scan(lambda a, b: [a[0] + b[0], a[1] * b[1]], (x, y), 0, combine_mode="generic")
    assert torch.allclose(made[0], x.cumsum(0))
    assert torch.allclose(made[1], y.cumprod(0))


def test_arguments():
    x = torch.ones(3, 2)
    with pytest.raises(ValueError, match="scan dimension > 0"):
        associative_scan(torch.add, x[:0], 0, combine_mode="generic")
    with pytest.raises(RuntimeError, match="Reverse must be a bool"):
        associative_scan(torch.add, x, 0, reverse=1, combine_mode="generic")
    with pytest.raises(ValueError, match="must dense Tensors"):
        associative_scan(torch.add, x.to_sparse(), 0, combine_mode="generic")
