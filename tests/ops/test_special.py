"""Special functions against values of 30 digits' arithmetic, rounded to double; limits are torch's."""

import math

import mica as torch
import pytest

inf, nan = math.inf, math.nan
special = torch.special

VALUES = [
    ("i0", (0.5,), 1.0634833707413236),
    ("i0", (-7.0,), 168.5939085102897),
    ("i0", (19.5,), 26760525.339838766),
    ("i0", (25.0,), 5774560606.4663105),
    ("i0e", (0.5,), 0.6450352704491501),
    ("i0e", (-19.5,), 0.09093943209515648),
    ("i0e", (700.0,), 0.015081295651531358),
    ("i1", (0.5,), 0.2578943053908963),
    ("i1", (-7.0,), -156.03909286995545),
    ("i1", (25.0,), 5657865129.878701),
    ("i1e", (-0.5,), -0.1564208031848717),
    ("i1e", (19.5,), 0.08857608609431485),
    ("i1e", (700.0,), 0.015070519444716848),
    ("ndtr", (-8.5,), 9.479534822203318e-18),
    ("ndtr", (-1.0,), 0.15865525393145705),
    ("ndtr", (0.3,), 0.6179114221889527),
    ("ndtr", (2.0,), 0.9772498680518208),
    ("log_ndtr", (-50.0,), -1254.8313611394199),
    ("log_ndtr", (-1.5,), -2.7059444008238898),
    ("log_ndtr", (-0.5,), -1.1759117615936185),
    ("log_ndtr", (3.0,), -0.0013508099647481938),
    ("erfcx", (-5.0,), 144009798674.66104),
    ("erfcx", (-0.5,), 1.952360489182557),
    ("erfcx", (0.5,), 0.6156903441929259),
    ("erfcx", (9.5,), 0.05906467835256389),
    ("erfcx", (10.5,), 0.05349189974656412),
    ("erfcx", (1000.0,), 0.0005641893014533876),
    ("ndtri", (0.3,), -0.5244005127080408),
    ("ndtri", (0.75,), 0.6744897501960817),
    ("ndtri", (1e-05,), -4.264890793922825),
    ("ndtri", (1e-300,), -37.0470962993612),
    ("entr", (0.3,), 0.3611918412977808),
    ("entr", (2.5,), -2.2907268296853878),
    ("gammainc", (0.5, 0.2), 0.4729107431344619),
    ("gammaincc", (0.5, 0.2), 0.5270892568655381),
    ("gammainc", (0.5, 3.0), 0.9856941215645704),
    ("gammaincc", (0.5, 3.0), 0.01430587843542964),
    ("gammainc", (2.5, 2.5), 0.5841198130044921),
    ("gammaincc", (2.5, 2.5), 0.41588018699550794),
    ("gammainc", (21.0, 20.0), 0.4409074157686748),
    ("gammaincc", (21.0, 20.0), 0.5590925842313252),
    ("gammainc", (100.0, 101.0), 0.5528962934345113),
    ("gammaincc", (100.0, 101.0), 0.44710370656548876),
    ("gammainc", (1000.0, 900.0), 0.0005499022657117829),
    ("gammaincc", (1000.0, 900.0), 0.9994500977342882),
    ("gammainc", (1e10, 1e10), 0.5000013298076013),  # 1 / 2 + 1 / (3 sqrt(2 pi a))
    ("zeta", (1.5, 0.25), 10.213055360466601),
    ("zeta", (3.0, 10.0), 0.0055249174854010335),
    ("xlog1py", (2.0, 1e-09), 1.999999999e-09),
]


@pytest.mark.parametrize(("name", "numbers", "expected"), VALUES)
def test_values(name, numbers, expected):
    function = getattr(special, name)
    for dtype, digits in ((torch.float64, 2e-13), (torch.float32, 3e-7)):
        if dtype == torch.float32 and min(abs(expected), abs(numbers[0])) < 1e-37:
            continue
        got = function(*(torch.tensor([x], dtype=dtype) for x in numbers))
        assert got.dtype == dtype and got.item() == pytest.approx(expected, rel=digits, abs=0)


@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("i0", (inf,), inf),
        ("ndtr", (-inf,), 0.0),
        ("log_ndtr", (-inf,), -inf),
        ("erfcx", (-inf,), inf),
        ("erfcx", (inf,), 0.0),
        ("ndtri", (0.0,), -inf),
        ("ndtri", (0.5,), 0.0),
        ("ndtri", (1.0,), inf),
        ("ndtri", (1.5,), nan),
        ("entr", (0.0,), 0.0),
        ("entr", (-1.0,), -inf),
        ("entr", (nan,), nan),
        ("xlog1py", (0.0, -1.0), 0.0),
        ("xlog1py", (0.0, nan), nan),
        ("zeta", (1.0, 2.0), inf),
        ("gammainc", (0.0, 1.0), 1.0),
        ("gammainc", (1.0, 0.0), 0.0),
        ("gammaincc", (inf, 1.0), 1.0),
        ("gammainc", (-1.0, 1.0), nan),
    ],
)
def test_limits(name, numbers, expected):
    got = getattr(special, name)(*(torch.tensor(x) for x in numbers)).item()
    assert got == expected or (math.isnan(expected) and math.isnan(got))


def test_names_and_forms():
    x = torch.tensor([1, 2])
    assert special.i0e(x).dtype == torch.float32
    for name, same in (("expit", torch.sigmoid), ("gammaln", torch.lgamma), ("psi", torch.digamma)):
        assert torch.equal(getattr(special, name)(x), same(x))
    assert special.xlog1py(2.0, x).tolist() == special.xlog1py(torch.tensor(2.0), x).tolist()
    out = torch.empty(0)
    assert special.ndtr(x, out=out) is out and torch.tensor([1.0]).i0_().item() == pytest.approx(1.2660658, rel=1e-6)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.igamma(x, x)
    with pytest.raises(RuntimeError, match="p has to be greater than or equal to 1"):
        torch.mvlgamma(x, 0)
    assert torch.mvlgamma(torch.tensor([3.0]), 3).item() == pytest.approx(2.6949248, rel=1e-6)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, inf])
@pytest.mark.parametrize("rows", [3, 30])
def test_distances_of_all_rows(p, rows):
    x1, x2 = torch.randn(2, rows, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    difference = x1.unsqueeze(2) - x2
    assert torch.allclose(torch.cdist(x1, x2, p), difference.norm(p, -1))
    if 0 < p < inf and rows == 3:
        inputs = (x1.requires_grad_(), x2.requires_grad_())
        assert torch.autograd.gradcheck(lambda a, b: torch.cdist(a, b, p), inputs)
        assert torch.autograd.gradgradcheck(lambda a, b: torch.cdist(a, b, p), inputs)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: torch.cdist(torch.zeros(3), torch.zeros(3)), RuntimeError, "at least 2D tensors, X1 got: 1D"),
        (
            lambda: torch.cdist(torch.zeros(3, 2), torch.zeros(3, 4)),
            RuntimeError,
            "same number of columns. X1: 2 X2: 4",
        ),
        (lambda: torch.cdist(torch.zeros(3, 2), torch.zeros(3, 2), p=-1), RuntimeError, "non-negative p values"),
        (lambda: torch.cdist(torch.zeros(3, 2), torch.zeros(3, 2), compute_mode="x"), ValueError, "x is not a valid"),
        (lambda: torch.cdist(torch.zeros(3, 2).int(), torch.zeros(3, 2).int()), RuntimeError, "floating-point dtypes"),
    ],
)
def test_distances_that_are_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_distances_without_columns_are_zero():
    assert torch.cdist(torch.zeros(3, 0), torch.zeros(2, 0)).tolist() == [[0.0, 0.0]] * 3


def test_polygamma_in_place():
    x = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    expected = x.polygamma(1)
    assert x.polygamma_(1) is x and torch.equal(x, expected)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        torch.tensor([1, 2]).polygamma_(1)


def test_zeta_of_floats_is_that_of_doubles_rounded():
    """Vectors of plain numbers, of limits, and of both."""
    generator = torch.Generator().manual_seed(7)
    x = 1 + 10 ** (5 * torch.rand(3001, generator=generator, dtype=torch.float64) - 3)
    q = 10 ** (6 * torch.rand(3001, generator=generator, dtype=torch.float64) - 3)
    x, q = x.float(), q.float()
    x[7], x[8], q[9], q[2999] = 1.0, 0.5, -2.0, float("nan")
    exact = torch.special.zeta(x.double(), q.double())
    one_by_one = torch.stack([torch.special.zeta(a, b) for a, b in zip(x[:40].double(), q[:40].double(), strict=True)])
    torch.testing.assert_close(exact[:40], one_by_one, rtol=1e-15, atol=0, equal_nan=True)
    torch.testing.assert_close(torch.special.zeta(x, q), exact.float(), rtol=1.2e-7, atol=1e-37, equal_nan=True)
