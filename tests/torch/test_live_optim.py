"""Optimizers and schedules beside torch's: the same steps, and runs that move from one to the other in their middle."""

import copy
import warnings

import mica
import numpy as np
import optim_cases as cases
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
STEPS = 20


def flat(t):
    return np.asarray(t.detach().double().flatten().tolist())


def moved(value, lib):
    """A saved state with the tensors of the other library."""
    if isinstance(value, (torch.Tensor, mica.Tensor)):
        return lib.tensor(value.tolist(), dtype=getattr(lib, str(value.dtype).split(".")[-1]))
    if isinstance(value, dict):
        return {k: moved(v, lib) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v, lib) for v in value)
    return value


def assert_same(theirs, ours, ulps=16):
    """Equal within some units in the last place of float32, of the larger of the number and of what it is made of."""
    for t, m in zip(theirs, ours, strict=True):
        assert t.shape == m.shape and str(t.dtype).split(".")[-1] == str(m.dtype).split(".")[-1]
        np.testing.assert_allclose(flat(m), flat(t), rtol=ulps * 2**-24, atol=ulps * 2**-24)


@pytest.mark.parametrize("case", cases.OPTIMIZERS)
def test_twenty_steps(case):
    theirs, their_params = cases.run(torch, case, STEPS)
    ours, our_params = cases.run(mica, case, STEPS)
    assert_same(their_params, our_params)
    a, b = theirs.state_dict(), ours.state_dict()
    for x, y in zip(a["param_groups"], b["param_groups"], strict=True):
        assert list(x) == list(y)
        for key in x:
            assert type(x[key]) is type(y[key]) or isinstance(x[key], torch.Tensor), key
    assert a["state"].keys() == b["state"].keys()
    for i, state in a["state"].items():
        assert list(state) == list(b["state"][i])
        assert_same(state.values(), b["state"][i].values())


@pytest.mark.parametrize("first, second", [(torch, mica), (mica, torch)], ids=["from_torch", "to_torch"])
@pytest.mark.parametrize("case", cases.OPTIMIZERS)
def test_move_in_the_middle(case, first, second):
    name, options = cases.OPTIMIZERS[case]
    stays, stays_params = cases.run(first, case, 7)
    params = [second.tensor(p.tolist(), dtype=second.float32, requires_grad=True) for p in stays_params]
    goes = getattr(second.optim, name)(params, **cases.options_for(second, options))
    goes.load_state_dict(moved(stays.state_dict(), second))
    for step in range(7, 14):
        for lib, optimizer, its_params in ((first, stays, stays_params), (second, goes, params)):
            cases.set_gradients(lib, its_params, name, step)
            optimizer.step()
    assert_same(stays_params, params)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "NAdam", "Rprop", "ASGD"])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_other_dtypes(name, dtype):
    results = []
    for lib in (torch, mica):
        draw = np.random.RandomState(0)
        values = draw.standard_normal((6, 5, 2)).view(np.complex128)[..., 0]
        values = values if dtype == "complex64" else values.real
        p = lib.tensor(values.tolist(), dtype=getattr(lib, dtype), requires_grad=True)
        optimizer = getattr(lib.optim, name)([p], lr=0.05)
        for _ in range(8):
            values = draw.standard_normal((6, 5, 2)).view(np.complex128)[..., 0]
            p.grad = lib.tensor((values if dtype == "complex64" else values.real).tolist(), dtype=getattr(lib, dtype))
            optimizer.step()
        results.append(np.asarray(p.detach().tolist()))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5 if dtype == "complex64" else 1e-9, atol=1e-6)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search):
    results = []
    for lib in (torch, mica):
        x = lib.tensor([-1.2, 1.0, 0.3], dtype=lib.float64, requires_grad=True)
        optimizer = lib.optim.LBFGS([x], max_iter=4, history_size=3, line_search_fn=search)

        def closure(x=x, optimizer=optimizer):
            optimizer.zero_grad()
            loss = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2 + x[2] ** 4
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(6)]
        state = optimizer.state_dict()["state"][0]
        results.append((losses, x.tolist(), {k: state[k] for k in ("func_evals", "n_iter")}, set(state)))
    assert results[1][2:] == results[0][2:]
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-7)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-7)


@pytest.mark.parametrize("case", cases.SCHEDULES)
def test_schedule(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cases.rates(mica, case) == cases.rates(torch, case)
        theirs, ours = (cases.SCHEDULES[case](lib, cases.two_groups(lib)) for lib in (torch, mica))
    assert list(theirs.state_dict()) == list(ours.state_dict())


@pytest.mark.parametrize("case", cases.SCHEDULES)
def test_schedule_moves_in_the_middle(case):
    optimizer = cases.two_groups(torch)
    schedule = cases.SCHEDULES[case](torch, optimizer)
    ours = cases.two_groups(mica)
    our_schedule = cases.SCHEDULES[case](mica, ours)
    for step in range(5):
        optimizer.step()
        cases.step_schedule(case, schedule, step)
    ours.load_state_dict(moved(copy.deepcopy(optimizer.state_dict()), mica))
    our_schedule.load_state_dict(copy.deepcopy(schedule.state_dict()))
    for step in range(5, 15):
        for o, s in ((optimizer, schedule), (ours, our_schedule)):
            o.step()
            cases.step_schedule(case, s, step)
        assert [g["lr"] for g in ours.param_groups] == [g["lr"] for g in optimizer.param_groups]


def test_grad_scaler():
    states = []
    for lib in (torch, mica):
        p = lib.ones(3, requires_grad=True)
        optimizer = lib.optim.Adam([p], lr=0.1)
        scaler = lib.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        seen = []
        for step in range(6):
            optimizer.zero_grad()
            scaler.scale((p * p).sum()).backward()
            if step == 3:
                p.grad[0] = float("nan")
            scaler.step(optimizer)
            scaler.update()
            seen.append(scaler.state_dict())
        states.append((seen, p.tolist()))
    assert states[0][0] == states[1][0]
    np.testing.assert_allclose(states[1][1], states[0][1], rtol=1e-6)


def test_defaults_and_signatures():
    import inspect

    for name in mica.optim.__all__:
        ours, theirs = getattr(mica.optim, name), getattr(torch.optim, name)
        if not inspect.isclass(ours):
            continue
        parameters = [inspect.signature(cls).parameters for cls in (theirs, ours)]
        assert [(p.name, p.default, p.kind) for p in parameters[0].values()] == [
            (p.name, p.default, p.kind) for p in parameters[1].values()
        ], name
    for name in mica.optim.lr_scheduler.__all__:
        parameters = [inspect.signature(getattr(lib.optim.lr_scheduler, name)).parameters for lib in (torch, mica)]
        assert [(p.name, p.default) for p in parameters[0].values()] == [
            (p.name, p.default) for p in parameters[1].values()
        ], name
