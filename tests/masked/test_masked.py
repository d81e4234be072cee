"""Operations on what a mask marks, and tensors that carry their mask. Expected values are torch's or plain selections."""

import copy
import math
import pickle

import mica
import pytest
from mica import masked
from mica.masked import MaskedTensor, as_masked_tensor, masked_tensor

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors", "ignore:It is not recommended")

X = mica.arange(12.0).view(3, 4) - 5
MASK = mica.tensor([[True, False, True, True], [False] * 4, [True, True, False, False]])


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "mean", "var", "std", "logsumexp", "norm"])
def test_reductions_of_rows_are_those_of_what_is_marked(name):
    whole = {"norm": lambda v: v.norm(), "logsumexp": lambda v: v.logsumexp(0)}.get(name, lambda v: getattr(v, name)())
    call = getattr(masked, name)
    result = call(X, dim=1, mask=MASK)
    for row in (0, 2):
        mica.testing.assert_close(result[row], whole(X[row][MASK[row]]))
    nothing = {"sum": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf, "logsumexp": -math.inf, "norm": 0.0}
    assert result[1].item() == nothing[name] if name in nothing else result[1].isnan()
    mica.testing.assert_close(call(X, mask=MASK), whole(X[MASK]))
    mica.testing.assert_close(call(X), whole(X.reshape(-1)))
    assert call(X, dim=1, keepdim=True, mask=MASK).shape == (3, 1)


def test_products_over_no_dimension():
    """As in torch 2.13: an empty tuple is all dimensions, an empty list none."""
    x, mask = mica.tensor([[1.0, 2.0], [3.0, 4.0]]), mica.tensor([[True, False], [True, True]])
    assert masked.prod(x, dim=(), mask=mask).item() == 12
    assert masked.prod(x, dim=[], mask=mask).tolist() == [[1.0, 1.0], [3.0, 4.0]]


def test_positions_and_medians():
    assert masked.argmax(X, 1, mask=MASK).tolist() == [3.0, 0.0, 1.0]
    assert masked.argmin(X, mask=MASK).item() == 0
    found = masked.median(X, 1, mask=MASK)
    assert found[0] == -3 and found[1].isnan() and found[2] == 3
    with pytest.raises(ValueError, match="no fully masked out rows"):
        masked.median(X.long(), 1, mask=MASK)


def test_integers_are_summed_widely():
    assert masked.sum(X.to(mica.int8), 1, mask=MASK).dtype is mica.int64
    assert masked.amax(X.int(), 1, mask=MASK).tolist() == [-2, mica.iinfo(mica.int32).min, 4]
    with pytest.raises(ValueError, match=r"mean\(\): Could not infer output dtype"):
        masked.mean(X.int(), 1, mask=MASK)
    with pytest.raises(NotImplementedError, match="identity of amax on torch.bool"):
        masked.amax(X > 0, 1, mask=MASK)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin", "cumsum", "cumprod"])
def test_along_a_row(name):
    result = getattr(masked, name)(X, 1, mask=MASK)
    for row in (0, 2):
        plain = getattr(mica.nn.functional, name, None) or getattr(mica, name)
        mica.testing.assert_close(result[row][MASK[row]], plain(X[row][MASK[row]], 0))


def test_other_functions():
    row = X[0][MASK[0]]
    mica.testing.assert_close(masked.normalize(X, 2.0, 1, mask=MASK)[0][MASK[0]], row / row.norm())
    mica.testing.assert_close(masked.logaddexp(X, 2 * X, input_mask=MASK)[1], 2 * X[1])
    mica.testing.assert_close(masked.var(X, 1, unbiased=False, mask=MASK)[0], row.var(unbiased=False))
    mica.testing.assert_close(masked.sum(X, 0, mask=MASK[0]), X.sum(0) * MASK[0])  # a mask that broadcasts
    with pytest.raises(IndexError, match="mask dimensionality higher"):
        masked.sum(X[0], mask=MASK)
    with pytest.raises(AssertionError, match="Only one of unbiased and correction"):
        masked.var(X, 1, True, correction=1)


def test_gradients_reach_what_is_marked():
    x = X.clone().requires_grad_()
    masked.mean(x, 1, mask=MASK)[0].backward()
    mica.testing.assert_close(x.grad[0], MASK[0] / 3)
    assert mica.autograd.gradcheck(
        lambda v: masked.softmax(v, 1, mask=mica.tensor([True, False, True, True])), X.double().requires_grad_()
    )


# ------------------------------------------------------------------------------------------------ masked tensors
def test_it_shows_what_is_meant():
    assert repr(masked_tensor(X, MASK)) == (
        "MaskedTensor(\n  [\n    [ -5.0000,       --,  -3.0000,  -2.0000],\n    [      --,       --,       --,       --],\n"
        "    [  3.0000,   4.0000,       --,       --]\n  ]\n)"
    )
    assert repr(masked_tensor(mica.tensor(3), mica.tensor(True))) == "MaskedTensor(3, True)"
    assert repr(masked_tensor(mica.tensor(3.0), mica.tensor(False))) == "MaskedTensor(--, False)"


def test_operations_keep_the_mask():
    a = masked_tensor(X, MASK)
    for result in (
        a + a,
        a * 2,
        1 - a,
        a.exp(),
        a > 0,
        a.float(),
        a.clone(),
        a.relu(),
        mica.sqrt(a.abs()),
        a.clamp(0, 1),
    ):
        assert isinstance(result, MaskedTensor) and mica.equal(result.get_mask(), MASK)
    mica.testing.assert_close((a * 2 + a).to_tensor(0.0), (3 * X).masked_fill(~MASK, 0))
    b = masked_tensor(X, MASK)
    b.add_(1)
    mica.testing.assert_close(b.get_data(), X + 1)
    with pytest.raises(ValueError, match="Input masks must match"):
        a + masked_tensor(X, ~MASK)


def test_views_have_their_part_of_the_mask():
    a = masked_tensor(X, MASK)
    for view, of in (
        (a[0], lambda t: t[0]), (a.t(), lambda t: t.t()), (a.view(-1), lambda t: t.view(-1)), (a[:, 1:], lambda t: t[:, 1:]),
        (a.unsqueeze(0), lambda t: t.unsqueeze(0)), (mica.cat([a, a]), lambda t: mica.cat([t, t])), (a.mT, lambda t: t.mT),
    ):  # fmt: skip
        mica.testing.assert_close(view.get_data(), of(X))
        assert mica.equal(view.get_mask(), of(MASK))


def test_reductions_and_gradients():
    a = masked_tensor(X, MASK, requires_grad=True)
    rows = a.sum(1)
    assert rows.get_mask().tolist() == [True, False, True]
    mica.testing.assert_close(rows.to_tensor(0.0), mica.tensor([-10.0, 0.0, 7.0]))
    (a * a).sum().backward()
    assert isinstance(a.grad, MaskedTensor)
    mica.testing.assert_close(a.grad.to_tensor(0.0), (2 * X).masked_fill(~MASK, 0))
    assert a.mean().item() == pytest.approx(X[MASK].mean().item())
    mica.testing.assert_close(a.softmax(1).get_data()[0][MASK[0]], X[0][MASK[0]].softmax(0))
    x = X.clone().requires_grad_()
    as_masked_tensor(x, MASK).sum().get_data().backward()
    assert mica.equal(x.grad, MASK.float())


def test_copies_and_refusals():
    a = masked_tensor(X, MASK)
    for other in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert mica.equal(other.get_mask(), MASK) and mica.equal(other.get_data(), X)
    for data, mask, error, words in (
        ([1], MASK, TypeError, "data must be a Tensor"),
        (X, 3, TypeError, "mask must be a Tensor"),
        (X, MASK.int(), TypeError, "mask must have dtype bool"),
        (X, MASK[0], ValueError, "data.dim\\(\\) must equal mask.dim"),
        (X, MASK[:2], ValueError, "data.size\\(\\) must equal mask.size"),
        (X.to(mica.complex64), MASK, TypeError, "is not supported in MaskedTensor"),
    ):
        with pytest.raises(error, match=words):
            masked_tensor(data, mask)
    with pytest.warns(UserWarning, match="not implemented in __torch_dispatch__"), pytest.raises(TypeError):
        mica.sort(a)


def test_what_masked_tensors_refuse_in_torchs_words():
    data, mask = mica.eye(3), mica.eye(3).bool()
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype can require gradients"):
        masked_tensor(mask, mask, requires_grad=True)
    for layout in (mica.sparse_coo, mica.sparse_csr):
        x = masked_tensor(data.to_sparse(layout=layout), mask.to_sparse(layout=layout))
        for call in (x.is_contiguous, x.contiguous):
            with pytest.raises(ValueError, match="MaskedTensors with sparse data do not have is_contiguous"):
                call()
