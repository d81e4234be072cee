"""Steps of optimizers: against torch's recorded trajectories, and against NumPy, one formula at a time."""

import json
import pathlib

import mica
import numpy as np
import optim_cases as cases
import pytest

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "recorded" / "optim.json").read_text())


def flat(t):
    return np.asarray(t.detach().double().flatten().tolist())


@pytest.mark.parametrize("case", cases.OPTIMIZERS)
def test_recorded_trajectory(case):
    recorded = RECORDED["optimizers"][case]
    for steps, expected in zip(RECORDED["steps"], recorded["params"], strict=True):
        optimizer, params = cases.run(mica, case, steps)
        for p, values in zip(params, expected, strict=True):
            np.testing.assert_allclose(flat(p), values, rtol=2e-6, atol=2e-7)
    saved = optimizer.state_dict()
    assert list(saved["param_groups"][0]) == recorded["options"]
    for i, state in enumerate(recorded["state"]):
        ours = saved["state"].get(i, {})
        assert list(ours) == list(state)
        for name, values in state.items():
            assert isinstance(ours[name], mica.Tensor)
            np.testing.assert_allclose(flat(ours[name]), values, rtol=2e-6, atol=2e-7)


# ---- the formulas, in NumPy's float64


def numpy_sgd(p, g, s, t, lr, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0):
    g = g + weight_decay * p
    if momentum:
        s["b"] = g if t == 1 else momentum * s["b"] + (1 - dampening) * g
        g = g + momentum * s["b"] if nesterov else s["b"]
    return p - lr * g


def moments(g, s, betas):
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    return s["m"], s["v"]


def numpy_adam(p, g, s, t, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False):
    m, v = moments(g + weight_decay * p, s, betas)
    if amsgrad:
        v = s["top"] = np.maximum(s.get("top", 0), v)
    return p - lr / (1 - betas[0] ** t) * m / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


def numpy_adamw(p, g, s, t, lr=1e-3, weight_decay=1e-2, **options):
    return numpy_adam(p * (1 - lr * weight_decay), g, s, t, lr=lr, **options)


def numpy_adamax(p, g, s, t, lr=2e-3, betas=(0.9, 0.999), eps=1e-8):
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["u"] = np.maximum(betas[1] * s.get("u", 0), np.abs(g) + eps)
    return p - lr / (1 - betas[0] ** t) * s["m"] / s["u"]


def numpy_nadam(p, g, s, t, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, decay=4e-3):
    m, v = moments(g, s, betas)
    mu, following = (betas[0] * (1 - 0.5 * 0.96 ** (k * decay)) for k in (t, t + 1))
    s["product"] = np.float32(s.get("product", 1)) * np.float32(mu)  # a float32 tensor between two steps
    product = float(s["product"])
    divisor = np.sqrt(v / (1 - betas[1] ** t)) + eps
    p = p - lr * (1 - mu) / (1 - product) * g / divisor
    return p - lr * following / (1 - product * following) * m / divisor


def numpy_radam(p, g, s, t, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
    m, v = moments(g, s, betas)
    m = m / (1 - betas[0] ** t)
    most = 2 / (1 - betas[1]) - 1
    rho = most - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
    if rho <= 5:
        return p - lr * m
    r = np.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
    return p - lr * r * m * np.sqrt(1 - betas[1] ** t) / (np.sqrt(v) + eps)


def numpy_rmsprop(p, g, s, t, lr=1e-2, alpha=0.99, eps=1e-8, momentum=0.0, centered=False):
    s["v"] = alpha * s.get("v", 0) + (1 - alpha) * g * g
    square = s["v"]
    if centered:
        s["g"] = alpha * s.get("g", 0) + (1 - alpha) * g
        square = square - s["g"] ** 2
    update = g / (np.sqrt(square) + eps)
    if momentum:
        update = s["b"] = momentum * s.get("b", 0) + update
    return p - lr * update


def numpy_adagrad(p, g, s, t, lr=1e-2, lr_decay=0.0, eps=1e-10):
    s["sum"] = s.get("sum", 0) + g * g
    return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s["sum"]) + eps)


def numpy_adadelta(p, g, s, t, lr=1.0, rho=0.9, eps=1e-6):
    s["v"] = rho * s.get("v", 0) + (1 - rho) * g * g
    delta = np.sqrt(s.get("d", 0) + eps) / np.sqrt(s["v"] + eps) * g
    s["d"] = rho * s.get("d", 0) + (1 - rho) * delta * delta
    return p - lr * delta


def numpy_rprop(p, g, s, t, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50)):
    agreement = g * s.get("g", 0)
    factor = np.where(agreement > 0, etas[1], np.where(agreement < 0, etas[0], 1))
    s["size"] = np.clip(s.get("size", lr) * factor, *step_sizes)
    s["g"] = np.where(agreement < 0, 0, g)
    return p - np.sign(s["g"]) * s["size"]


def numpy_asgd(p, g, s, t, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6):
    eta, mu = s.get("eta", float(np.float32(lr))), s.get("mu", 1)
    p = p * (1 - lambd * eta) - eta * g
    s["ax"] = p if mu == 1 else s["ax"] + mu * (p - s["ax"])
    s["eta"] = float(np.float32(lr / (1 + lambd * lr * t) ** alpha))  # a float32 tensor between two steps
    s["mu"] = float(np.float32(1 / max(1, t - t0)))
    return p


FORMULAS = [
    ("SGD", numpy_sgd, {"lr": 0.1}),
    ("SGD", numpy_sgd, {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", numpy_sgd, {"lr": 0.1, "momentum": 0.8, "nesterov": True}),
    ("Adam", numpy_adam, {}),
    ("Adam", numpy_adam, {"amsgrad": True, "weight_decay": 0.1, "betas": (0.6, 0.7)}),
    ("AdamW", numpy_adamw, {"weight_decay": 0.5, "lr": 0.1}),
    ("Adamax", numpy_adamax, {"lr": 0.1}),
    ("NAdam", numpy_nadam, {"lr": 0.1}),
    ("RAdam", numpy_radam, {"lr": 0.1, "betas": (0.9, 0.95)}),
    ("RMSprop", numpy_rmsprop, {}),
    ("RMSprop", numpy_rmsprop, {"momentum": 0.9, "centered": True}),
    ("Adagrad", numpy_adagrad, {"lr_decay": 0.1}),
    ("Adadelta", numpy_adadelta, {"rho": 0.7}),
    ("Rprop", numpy_rprop, {}),
    ("ASGD", numpy_asgd, {"t0": 4, "lambd": 0.1}),
]


@pytest.mark.parametrize("name, formula, options", FORMULAS, ids=lambda v: v if isinstance(v, str) else "")
def test_formula(name, formula, options):
    draw = np.random.RandomState(3)
    expected = draw.standard_normal(37)
    p = mica.tensor(expected.tolist(), dtype=mica.float64, requires_grad=True)
    optimizer = getattr(mica.optim, name)([p], **options)
    state = {}
    for t in range(1, 13):
        grad = draw.standard_normal(37)
        p.grad = mica.tensor(grad.tolist(), dtype=mica.float64)
        optimizer.step()
        expected = formula(expected, grad, state, t, **options)
        np.testing.assert_allclose(flat(p), expected, rtol=1e-11)


def test_maximize_is_descent_on_the_negated_gradient():
    for name, options in (("SGD", {"momentum": 0.9}), ("Adam", {}), ("RMSprop", {}), ("Rprop", {}), ("Adadelta", {})):
        up, down = (mica.ones(5, requires_grad=True) for _ in range(2))
        climb = getattr(mica.optim, name)([up], maximize=True, **options)
        descend = getattr(mica.optim, name)([down], **options)
        for step in range(4):
            up.grad = mica.arange(5.0) - step
            down.grad = -up.grad
            climb.step()
            descend.step()
        assert mica.equal(up, down)


def test_nan_gradients_reach_only_their_elements():
    p = mica.ones(40, requires_grad=True)
    optimizer = mica.optim.Adam([p], amsgrad=True)
    p.grad = mica.ones(40)
    p.grad[3] = float("nan")
    optimizer.step()
    assert p.isnan().nonzero().flatten().tolist() == [3]


def test_parameters_without_gradient_are_left_alone():
    a, b = mica.ones(2, requires_grad=True), mica.ones(2, requires_grad=True)
    optimizer = mica.optim.Adam([a, b])
    a.grad = mica.ones(2)
    optimizer.step()
    assert b.tolist() == [1, 1] and b not in optimizer.state and a in optimizer.state


# ---- the functions beside the classes, as a gradient scaler uses them


def call_adam(params, grads, **modes):
    states = [[mica.zeros_like(p) for p in params] for _ in range(2)]
    steps = [mica.tensor(0.0) for _ in params]
    numbers = {"amsgrad": False, "beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": 0.0, "eps": 1e-8}
    mica.optim.adam.adam(params, grads, *states, [], steps, **numbers, maximize=False, **modes)
    return steps + [s for state in states for s in state]


def call_adamw(params, grads, **modes):
    states = [[mica.zeros_like(p) for p in params] for _ in range(2)]
    steps = [mica.tensor(0.0) for _ in params]
    numbers = {"amsgrad": False, "beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": 0.1, "eps": 1e-8}
    mica.optim.adamw.adamw(params, grads, *states, [], steps, None, False, **numbers, maximize=False, **modes)
    return steps + [s for state in states for s in state]


def call_sgd(params, grads, **modes):
    buffers = [mica.ones_like(p) for p in params]
    numbers = {"weight_decay": 0.0, "momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": False}
    mica.optim.sgd.sgd(params, grads, buffers, **numbers, maximize=False, **modes)
    return buffers


def call_adagrad(params, grads, **modes):
    sums, steps = [mica.zeros_like(p) for p in params], [mica.tensor(0.0) for _ in params]
    numbers = {"lr": 0.1, "weight_decay": 0.0, "lr_decay": 0.0, "eps": 1e-10}
    mica.optim.adagrad.adagrad(params, grads, sums, steps, **numbers, maximize=False, **modes)
    return sums + steps


@pytest.mark.parametrize("call", [call_adam, call_adamw, call_sgd, call_adagrad])
def test_scale_and_found_inf_of_the_functions(call):
    start = [mica.tensor([1.0, -2.0]), mica.tensor([3.0])]
    grads = [mica.tensor([0.5, 0.25]), mica.tensor([-1.0])]
    with mica.no_grad():
        plain, scaled, skipped = ([p.clone() for p in start] for _ in range(3))
        states = call(plain, [g.clone() for g in grads])
        multiplied = [g * 8 for g in grads]
        scaled_states = call(scaled, multiplied, grad_scale=mica.tensor(8.0), found_inf=mica.tensor(0.0))
        untouched = call(skipped, [g * float("nan") for g in grads], found_inf=mica.tensor(1.0))
    for left, right in zip(plain + states, scaled + scaled_states, strict=True):
        assert mica.equal(left, right)
    assert all(mica.equal(g, m) for g, m in zip(grads, multiplied, strict=True))  # divided in place, as torch does
    assert all(mica.equal(p, s) for p, s in zip(skipped, start, strict=True))
    assert all(bool((s == 0).all()) or call is call_sgd for s in untouched)


def test_adafactor_refuses_a_scale():
    with pytest.raises(AssertionError, match="Grad scaling should occur outside of"):
        mica.optim._adafactor.adafactor(
            [], [], [], [], [], [], grad_scale=mica.ones(1), d=1, lr=1, beta2_decay=-0.8, weight_decay=0, eps1=None,
            eps2=1e-3, maximize=False,
        )  # fmt: skip
