"""LBFGS."""

import copy

import mica
import pytest


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


def minimise(optimizer, x, steps):
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    for _ in range(steps):
        losses.append(optimizer.step(closure).item())
    return losses


# torch's losses before each of the first steps, in float64.
RECORDED = {
    None: [24.199999999999996, 18.773762591899434, 6.412442546983449, 3.97949838562747],
    "strong_wolfe": [24.199999999999996, 4.146927102567213, 4.121126775765638, 4.084955376327375],
}


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_finds_the_minimum(search):
    x = mica.tensor([-1.2, 1.0], dtype=mica.float64, requires_grad=True)
    optimizer = mica.optim.LBFGS([x], line_search_fn=search, max_iter=30, tolerance_change=1e-16)
    losses = minimise(optimizer, x, 10)
    assert losses[-1] < 1e-12 and x.tolist() == pytest.approx([1, 1], abs=1e-5)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_recorded_losses(search):
    x = mica.tensor([-1.2, 1.0], dtype=mica.float64, requires_grad=True)
    assert minimise(mica.optim.LBFGS([x], line_search_fn=search, max_iter=3), x, 4) == pytest.approx(RECORDED[search])


def test_goes_on_from_a_saved_state():
    x = mica.tensor([-1.2, 1.0], requires_grad=True)
    optimizer = mica.optim.LBFGS([x], max_iter=4, line_search_fn="strong_wolfe")
    minimise(optimizer, x, 2)
    y = x.detach().clone().requires_grad_()
    other = mica.optim.LBFGS([y], line_search_fn="strong_wolfe")
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert minimise(optimizer, x, 3) == minimise(other, y, 3)
    state = optimizer.state_dict()["state"][0]
    assert set(state) == {
        "func_evals", "n_iter", "al", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss",
    }  # fmt: skip


def test_limits_of_evaluations_and_history():
    x = mica.tensor([-1.2, 1.0], requires_grad=True)
    optimizer = mica.optim.LBFGS([x], max_iter=50, max_eval=7, history_size=2)
    minimise(optimizer, x, 2)
    state = optimizer.state[x]
    assert state["func_evals"] <= 2 * 7 and len(state["old_dirs"]) <= 2 and len(state["al"]) == 2


def test_nothing_to_do_at_a_minimum():
    x = mica.tensor([1.0, 1.0], requires_grad=True)
    optimizer = mica.optim.LBFGS([x])
    assert minimise(optimizer, x, 1) == [0.0] and x.tolist() == [1, 1]
    assert optimizer.state[x] == {"func_evals": 1, "n_iter": 0}


def test_complex_and_missing_gradients():
    z, unused = mica.tensor([1 + 2j, -1j], requires_grad=True), mica.ones(2, requires_grad=True)
    optimizer = mica.optim.LBFGS([z, unused], max_iter=40)

    def closure():
        optimizer.zero_grad()
        loss = (z - (0.5 - 1j)).abs().pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert abs(z[0].item() - (0.5 - 1j)) < 1e-4 and unused.tolist() == [1, 1]


def test_errors():
    a, b = mica.ones(1, requires_grad=True), mica.ones(1, requires_grad=True)
    with pytest.raises(ValueError, match="LBFGS doesn't support per-parameter options"):
        mica.optim.LBFGS([{"params": [a]}, {"params": [b]}])
    optimizer = mica.optim.LBFGS([a], line_search_fn="armijo")
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        optimizer.step(lambda: (a * a).sum())
    with pytest.raises(ZeroDivisionError):
        mica.optim.LBFGS([a]).step(lambda: 1 / 0)
    with pytest.raises(TypeError):
        mica.optim.LBFGS([a]).step()
