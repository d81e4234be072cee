"""`_version`: a call that changes a tensor counts as one change, by however many operations the engine carries it out."""

import mica as torch
import pytest
from mica.nn import functional as F

Y = torch.linspace(0.1, 0.9, 16).view(4, 4)
HOLDS = Y > 0.5

# name -> what changes a matrix of four by four.
CHANGES = {
    "add_": lambda x: x.add_(Y),
    "add_ of another dtype": lambda x: x.add_(Y.double()),
    "addmm_": lambda x: x.addmm_(Y, Y),
    "celu_": lambda x: F.celu_(x, 0.5),
    "clamp_": lambda x: x.clamp_(0.2, 0.4),
    "clamp_ by tensors": lambda x: x.clamp_(Y - 1, Y),
    "cumprod_": lambda x: x.cumprod_(0),
    "cumsum_": lambda x: x.cumsum_(1),
    "elu_": lambda x: F.elu_(x),
    "eq_": lambda x: x.eq_(0.5),
    "fill_diagonal_": lambda x: x.fill_diagonal_(2),
    "fill_diagonal_, wrapped": lambda x: x.fill_diagonal_(2, wrap=True),
    "gt_": lambda x: x.gt_(Y),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0, 2]), Y[:2]),
    "ldexp_": lambda x: x.ldexp_(Y),
    "logical_and_": lambda x: x.logical_and_(Y),
    "logical_not_": lambda x: x.logical_not_(),
    "masked_fill_": lambda x: x.masked_fill_(HOLDS, 1),
    "masked_scatter_": lambda x: x.masked_scatter_(HOLDS, Y),
    "renorm_": lambda x: x.renorm_(2, 0, 0.5),
    "scatter_add_": lambda x: x.scatter_add_(0, torch.tensor([[0, 1, 1, 0]]), Y),
    "selu_": lambda x: F.selu_(x),
    "squeeze_": lambda x: x.squeeze_(),
    "tril_": lambda x: x.tril_(),
    "triu_": lambda x: x.triu_(1),
    "x[...] =": lambda x: x.__setitem__((slice(None), 1), 2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_place_is_one(name):
    for x in (torch.rand(4, 4), torch.rand(4, 8)[:, ::2], torch.rand(4, 4).t()):
        before, view = x._version, x[:1]
        CHANGES[name](x)
        assert x._version == before + 1 and view._version == before + 1
    # In graphs, too: a tensor that was saved before the change is refused.
    weight, x = torch.ones(4, 4, requires_grad=True), torch.rand(4, 4)
    loss = (weight * x).sum()
    CHANGES[name](x)
    assert x._version == 1
    if name != "squeeze_":
        with pytest.raises(RuntimeError, match="is at version 1; expected version 0 instead"):
            loss.backward()


OUTS = {
    "add": lambda out: torch.add(Y, 1, out=out),
    "arange": lambda out: torch.arange(4.0, out=out),
    "cat": lambda out: torch.cat([Y, Y], out=out),
    "cholesky_inverse": lambda out: torch.cholesky_inverse(Y, out=out),
    "cos": lambda out: torch.cos(Y, out=out),
    "diag": lambda out: torch.diag(Y, out=out),
    "eye": lambda out: torch.eye(3, out=out),
    "fft.fftfreq": lambda out: torch.fft.fftfreq(4, out=out),
    "full": lambda out: torch.full((2, 2), 3.0, out=out),
    "inverse": lambda out: torch.inverse(Y + torch.eye(4), out=out),
    "kron": lambda out: torch.kron(Y, Y, out=out),
    "linalg.matrix_power": lambda out: torch.linalg.matrix_power(Y, 3, out=out),
    "linspace": lambda out: torch.linspace(0, 1, 5, out=out),
    "logsumexp": lambda out: torch.logsumexp(Y, 1, out=out),
    "matmul": lambda out: torch.matmul(Y, Y, out=out),
    "mvlgamma": lambda out: torch.mvlgamma(Y + 3, 2, out=out),
    "normal": lambda out: torch.normal(Y, 1.0, out=out),
    "ones": lambda out: torch.ones(2, out=out),
    "softmax": lambda out: torch.softmax(Y, 1, out=out),
    "stack": lambda out: torch.stack([Y, Y], out=out),
    "sum": lambda out: torch.sum(Y, 1, out=out),
    "tril": lambda out: torch.tril(Y, out=out),
}


@pytest.mark.parametrize("name", OUTS)
def test_a_result_that_is_written_is_one_change(name):
    like = OUTS[name](torch.empty(0))
    spread = torch.empty(*like.shape, 2)[..., 0]
    for out in (torch.empty(0), torch.empty_like(like), spread, torch.empty_like(like, dtype=torch.float64)):
        try:
            OUTS[name](out)
        except RuntimeError as error:  # some operations take one dtype alone
            assert out.dtype == torch.float64 and "type" in str(error)
            assert out._version == 0
        else:
            assert out._version == 1


def test_two_results_are_one_change_each():
    values, places = torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.sort(Y, out=(values, places))
    torch.topk(Y, 4, out=(values, places))
    assert values._version == places._version == 2
