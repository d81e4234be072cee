"""AOT autograd: memory that is read in another dtype, as real numbers or as a conjugate."""

import mica as torch
import pytest


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.detach().view(torch.int64),
        lambda x: x.detach().view(torch.int32)[1:],
        lambda x: x.detach()[1:].imag,
        lambda x: x.detach().real,
        lambda x: torch.view_as_real(x.detach()),
        lambda x: x.detach().conj(),
        lambda x: x.detach().conj().imag,
        lambda x: x.detach().mT,
    ],
    ids=["wider", "narrower", "imag", "real", "as_real", "conj", "imag_of_conj", "transposed"],
)
def test_results_read_the_memory_of_an_input_as_the_function_does(function):
    x = torch.tensor([[1 + 2j, 3 - 1j], [0.5j, 2 + 0j]])
    expected, made = function(x), torch.compile(function, backend="aot_eager", fullgraph=True)(x)
    assert made.dtype is expected.dtype and made.is_conj() == expected.is_conj()
    assert torch.equal(made.resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg())
    assert made.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def _bits(x):
    x.view(torch.int32).add_(1)
    return x * 1


def _bits_of_a_part(x):
    y = x.clone()
    y.T.view(torch.int32)[:, 1].sub_(1)
    return y, x


def _conjugate(x):
    y = torch.complex(x, x)
    y.conj().mul_(1j)
    return y * 1


@pytest.mark.parametrize("function", [_bits, _bits_of_a_part, _conjugate], ids=lambda f: f.__name__)
def test_changes_of_memory_that_is_read_in_another_way(function):
    x, y = torch.linspace(1, 2, 8).view(2, 4), torch.linspace(1, 2, 8).view(2, 4)
    expected = function(x)
    torch.testing.assert_close(
        torch.compile(function, backend="aot_eager", fullgraph=True)(y), expected, rtol=0, atol=0
    )
    assert torch.equal(x, y)


def test_a_view_of_an_input_that_is_transposed_in_place():
    def function(x):
        y = x[:, ::2]
        y.t_()
        y.mul_(0.5)
        return y

    x, z = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3)
    expected, made = function(x), torch.compile(function, backend="aot_eager", fullgraph=True)(z)
    assert torch.equal(made, expected) and made.stride() == expected.stride() and torch.equal(x, z)


def test_a_view_of_an_input_that_gets_a_dimension_in_place():
    def function(x):
        y = x[1:]
        y.unsqueeze_(0)
        return y.permute(2, 0, 1)

    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(torch.compile(function, backend="aot_eager", fullgraph=True)(x), function(x))
