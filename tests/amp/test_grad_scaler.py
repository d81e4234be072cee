"""GradScaler."""

import pickle

import mica
import pytest
from mica.amp import GradScaler


def setup(lr=1.0, **options):
    p = mica.ones(3, requires_grad=True)
    optimizer = mica.optim.SGD([p], lr=lr, **options)
    return p, optimizer


def backward(scaler, p, factor=1.0):
    p.grad = None
    scaler.scale((p * factor).sum()).backward()


@pytest.mark.parametrize("fused", [None, True])
def test_step_sees_unscaled_gradients(fused):
    p, optimizer = setup(fused=fused)
    scaler = GradScaler("cpu", init_scale=8.0)
    backward(scaler, p)
    assert p.grad.tolist() == [8, 8, 8]
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0, 0, 0] and p.grad.tolist() == [1, 1, 1] and scaler.get_scale() == 8


@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("bad", [float("inf"), float("nan"), -float("inf")])
def test_bad_gradients_skip_the_step(bad, fused):
    p, optimizer = setup(fused=fused)
    scaler = GradScaler("cpu", init_scale=8.0, backoff_factor=0.25)
    backward(scaler, p)
    p.grad[1] = bad
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [1, 1, 1] and scaler.get_scale() == 2 and scaler._get_growth_tracker() == 0
    backward(scaler, p)
    scaler.step(optimizer)
    assert p.tolist() == [0, 0, 0]


def test_scale_grows():
    p, optimizer = setup(lr=0.0)
    scaler = GradScaler("cpu", init_scale=4.0, growth_factor=3.0, growth_interval=2)
    scales = []
    for _ in range(5):
        backward(scaler, p)
        scaler.step(optimizer)
        scaler.update()
        scales.append((scaler.get_scale(), scaler._get_growth_tracker()))
    assert scales == [(4, 1), (12, 0), (12, 1), (36, 0), (36, 1)]


def test_growth_stops_before_infinity():
    p, optimizer = setup(lr=0.0)
    scaler = GradScaler("cpu", init_scale=2.0**127, growth_interval=1)
    p.grad = None
    scaler.scale(p.sum() * 2.0**-126).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**127


def test_unscale_before_clipping():
    p, optimizer = setup()
    scaler = GradScaler("cpu", init_scale=16.0)
    backward(scaler, p)
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called on this optimizer since the last"):
        scaler.unscale_(optimizer)
    p.grad.mul_(0.5)
    scaler.step(optimizer)
    assert p.tolist() == [0.5] * 3
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update\(\)"):
        scaler.step(optimizer)


def test_several_optimizers_are_checked_apart():
    (p, first), (q, second) = setup(), setup()
    scaler = GradScaler("cpu", init_scale=2.0)
    losses = scaler.scale([p.sum(), (q.sum(),)])
    assert isinstance(losses, list) and isinstance(losses[1], tuple)
    (losses[0] + losses[1][0]).backward()
    q.grad[0] = float("inf")
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert p.tolist() == [0, 0, 0] and q.tolist() == [1, 1, 1] and scaler.get_scale() == 1


@pytest.mark.parametrize("dtype", [mica.float64, mica.bfloat16, mica.float32])
def test_dtypes_layouts_and_sizes(dtype):
    grads = [
        mica.full((70001,), 6.0, dtype=dtype),
        mica.full((4, 6), 6.0, dtype=dtype)[:, ::2],
        mica.zeros(0, dtype=dtype),
    ]
    found, scale = mica.zeros(()), mica.tensor(0.5)
    mica._C._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
    assert found.item() == 0 and all((g == 3).all() for g in grads)
    for which, place in ((0, 70000), (1, (2, 1))):
        grads[which][place] = float("inf")
        mica._C._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
        assert found.item() == 1
        found.zero_()
        grads[which][place] = 1


def test_half_gradients_are_refused():
    p = mica.ones(2, dtype=mica.float16, requires_grad=True)
    scaler = GradScaler("cpu")
    scaler.scale(mica.ones(1))
    p.grad = mica.ones(2, dtype=mica.float16)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        scaler.step(mica.optim.SGD([p]))


def test_saving():
    p, optimizer = setup()
    scaler = GradScaler("cpu", init_scale=4.0, growth_interval=3)
    backward(scaler, p)
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    scaler.step(optimizer)
    with pytest.raises(AssertionError, match="may only be pickled at the beginning of an iteration"):
        pickle.dumps(scaler)
    scaler.update()
    saved = scaler.state_dict()
    assert saved == {
        "scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3, "_growth_tracker": 1,
    }  # fmt: skip
    other = GradScaler("cpu")
    other.load_state_dict(saved)
    assert other.state_dict() == saved == pickle.loads(pickle.dumps(scaler)).state_dict()
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        other.load_state_dict({})


def test_set_scale():
    scaler = GradScaler("cpu")
    with pytest.raises(AssertionError, match="Attempted update but _scale is None"):
        scaler.update()
    scaler.scale(mica.ones(1))
    scaler.update(32.0)
    assert scaler.get_scale() == 32
    scaler.update(mica.tensor(64.0))
    assert scaler.get_scale() == 64
    with pytest.raises(AssertionError, match="new_scale should be a float"):
        scaler.update(mica.ones(2))


def test_disabled():
    p, optimizer = setup()
    scaler = GradScaler("cpu", enabled=False)
    loss = p.sum()
    assert scaler.scale(loss) is loss and not scaler.is_enabled() and scaler.get_scale() == 1.0
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0, 0, 0] and scaler.state_dict() == {}
    if not mica.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available.  Disabling"):
            assert not GradScaler().is_enabled()


def test_bad_options():
    with pytest.raises(AssertionError, match="The growth factor must be > 1.0."):
        GradScaler("cpu", growth_factor=1.0)
    with pytest.raises(AssertionError, match="The backoff factor must be < 1.0."):
        GradScaler("cpu", backoff_factor=1.0)
    p, optimizer = setup()
    scaler = GradScaler("cpu")
    backward(scaler, p)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported if GradScaler is enabled."):
        scaler.step(optimizer, closure=lambda: None)
    with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable of Tensors"):
        scaler.scale(3)


@pytest.mark.parametrize("value, found", [(64.0, 0.0), (float("inf"), 1.0), (float("nan"), 1.0)])
def test_sparse_gradients_are_unscaled(value, found):
    index = mica.tensor([[0, 1, 1], [2, 0, 2]])
    p = mica.zeros(2, 3, requires_grad=True)
    p.grad = mica.sparse_coo_tensor(index, mica.tensor([16.0, 32.0, value]), (2, 3))
    optimizer = mica.optim.SGD([p], lr=1.0)
    got = GradScaler("cpu")._unscale_grads_(optimizer, mica.full((1,), 0.25), mica.zeros(1), False)
    assert got[mica.device("cpu")].item() == found
    assert p.grad.to_dense()[0].tolist() == [0, 0, 4] and p.grad.to_dense()[1, 0] == 8


def test_sparse_gradients_that_overflow_where_they_are_summed():
    index = mica.tensor([[0, 1, 0], [2, 0, 2]])
    p = mica.zeros(2, 3, dtype=mica.float16, requires_grad=True)
    p.grad = mica.sparse_coo_tensor(index, mica.tensor([64000.0, 32.0, 64000.0]).half(), (2, 3))
    optimizer = mica.optim.SGD([p], lr=1.0)
    got = GradScaler("cpu")._unscale_grads_(optimizer, mica.full((1,), 0.25), mica.zeros(1), True)
    assert got[mica.device("cpu")].item() == 1
