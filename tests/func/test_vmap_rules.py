"""Operations that once went through the examples one by one: they are one call now, and give the same."""

import mica as torch
import pytest
from mica.func import _batched, vmap

D = torch.float64
X = torch.linspace(-2, 2, 60, dtype=D).sin().reshape(3, 4, 5)
V = torch.linspace(-1, 1, 18, dtype=D).cos().mul(3).reshape(3, 6)
M = X[:, :, :4].contiguous() + 2 * torch.eye(4, dtype=D)
CASES = {
    "fft": (lambda a: torch.fft.fft(a, dim=0), X),
    "rfft": (lambda a: torch.fft.rfft(a, 8), X),
    "fftn": (lambda a: torch.fft.fftn(a), X),
    "fftn of sizes": (lambda a: torch.fft.fftn(a, (3,)), X),
    "fft2": (lambda a: torch.fft.fft2(a), X),
    "irfft2": (lambda a: torch.fft.irfft2(torch.complex(a, a), dim=(0, 1)), X),
    "fftshift": (lambda a: torch.fft.fftshift(a), X),
    "fftshift of one": (lambda a: torch.fft.fftshift(a, 0), X),
    "stft": (lambda a: torch.stft(a, 4, 2, window=torch.ones(4, dtype=D), return_complex=True), V),
    "matrix_norm": (lambda a: torch.linalg.matrix_norm(a), X),
    "cond": (lambda a: torch.linalg.cond(a), M),
    "householder_product": (lambda a: torch.linalg.householder_product(*torch.geqrf(a)), X.mT.contiguous()),
    "vander": (lambda a: torch.linalg.vander(a), V),
    "addr": (lambda a: torch.addr(a, a[0], a[:, 0], beta=2, alpha=3), M),
    "kron": (lambda a: torch.kron(a, a[:2]), M),
    "cdist": (lambda a: torch.cdist(a, a * 2), X),
    "bucketize": (lambda a: torch.bucketize(a, torch.tensor([-1.0, 0, 1], dtype=D)), X),
    "searchsorted": (lambda a: torch.searchsorted(a.sort().values, a), V),
    "searchsorted of one": (lambda a: torch.searchsorted(a.sort().values, a[0]), V),
    "isin": (lambda a: torch.isin(a, torch.tensor([0.0])), X),
    "take": (lambda a: torch.take(a, torch.tensor([0, -1, 5])), X),
    "aminmax": (lambda a: tuple(torch.aminmax(a)), X),
    "aminmax of one": (lambda a: tuple(torch.aminmax(a, dim=1, keepdim=True)), X),
    "select_scatter": (lambda a: torch.select_scatter(a, a[:, 0], 1, 2), X),
    "slice_scatter": (lambda a: torch.slice_scatter(a, a[:2], 0, 1, 3), X),
    "diagonal_scatter": (lambda a: torch.diagonal_scatter(a, a[0]), M),
    "flipud": (lambda a: torch.flipud(a), X),
    "fliplr": (lambda a: torch.fliplr(a), X),
    "rot90": (lambda a: torch.rot90(a), X),
    "hsplit": (lambda a: tuple(torch.hsplit(a, [2])), X),
    "vsplit": (lambda a: tuple(torch.vsplit(a, 2)), X),
    "permute_copy": (lambda a: torch.permute_copy(a, (1, 0)), X),
    "transpose_copy": (lambda a: torch.transpose_copy(a, 0, 1), X),
    "unsqueeze_copy": (lambda a: torch.unsqueeze_copy(a, 0), X),
    "unsqueeze_": (lambda a: a.clone().unsqueeze_(0) * 1, X),
    "squeeze_": (lambda a: a[:1].clone().squeeze_(0) + 1, X),
    "t_": (lambda a: a.clone().t_() @ a, X),
    "bessel_j0": (lambda a: torch.special.bessel_j0(a), X),
    "chebyshev": (lambda a: torch.special.chebyshev_polynomial_t(a, torch.tensor(3, dtype=D)), X),
    "frexp": (lambda a: tuple(torch.frexp(a)), X),
    "lu_unpack": (lambda a: tuple(torch.lu_unpack(*torch.linalg.lu_factor(a))), M),
    "ldl_factor": (lambda a: torch.linalg.ldl_factor(a + a.mT)[0], M),
}


@pytest.mark.parametrize("name", CASES)
def test_one_call_for_all(name, monkeypatch):
    function, examples = CASES[name]

    def refuse(call):
        raise AssertionError(f"{call.name} went through the examples")

    expected = [function(example) for example in examples]
    monkeypatch.setattr(_batched, "through_examples", refuse)
    got = vmap(function)(examples)
    columns = zip(*expected, strict=True) if isinstance(got, tuple) else [expected]
    for value, column in zip(got if isinstance(got, tuple) else [got], columns, strict=True):
        torch.testing.assert_close(value, torch.stack(list(column)), rtol=1e-9, atol=1e-10)


def test_memory_of_an_example_cannot_change():
    with pytest.raises(RuntimeError, match="resize_ is not possible"):
        vmap(lambda a: a.clone().resize_(2))(V)
