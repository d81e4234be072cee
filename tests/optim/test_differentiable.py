"""Steps that autograd follows."""

import mica
import pytest

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"weight_decay": 0.1}),
    ("Adamax", {}),
    ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("RAdam", {"betas": (0.8, 0.9)}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Rprop", {}),
    ("ASGD", {}),
]


@pytest.mark.parametrize("name, options", CASES, ids=[n + str(len(o)) for n, o in CASES])
def test_gradcheck_through_three_steps(name, options):
    def after(start, *grads):
        p = start.clone()
        optimizer = getattr(mica.optim, name)([p], differentiable=True, **options)
        if "momentum" in options and name == "SGD":
            # A buffer that the first step makes is cut off from its gradient, as torch does.
            optimizer.state[p]["momentum_buffer"] = mica.ones(4, dtype=mica.float64)
        for g in grads:
            p.grad = g * 1
            optimizer.step()
        return p

    mica.manual_seed(4)
    inputs = [mica.randn(4, dtype=mica.float64).requires_grad_() for _ in range(4)]
    assert mica.autograd.gradcheck(after, inputs, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Adamax"])
def test_gradient_of_the_learning_rate(name):
    start = mica.tensor([1.0, -2.0, 3.0], dtype=mica.float64)

    def loss(lr):
        p = start.clone()
        optimizer = getattr(mica.optim, name)([p], lr=lr, differentiable=True)
        for step in range(3):
            p.grad = start * 1.5 + 0.3 * step
            optimizer.step()
        return (p * p).sum()

    assert mica.autograd.gradcheck(loss, mica.tensor(0.1, dtype=mica.float64, requires_grad=True))


def test_gradient_of_betas_and_weight_decay():
    def after(beta1, beta2):
        p = mica.ones(3, dtype=mica.float64)
        optimizer = mica.optim.Adam([p], lr=0.1, betas=(beta1, beta2), differentiable=True)
        for step in range(3):
            p.grad = mica.arange(1.0, 4.0, dtype=mica.float64) * (step + 1)
            optimizer.step()
        return p

    betas = [mica.tensor(b, dtype=mica.float64, requires_grad=True) for b in (0.8, 0.9)]
    assert mica.autograd.gradcheck(after, betas, atol=1e-5, rtol=1e-3)


def test_differentiable_equals_fused():
    for name, options in CASES:
        results = []
        for differentiable in (False, True):
            p = mica.linspace(-1, 1, 9, dtype=mica.float64)
            p = p if differentiable else p.requires_grad_()
            optimizer = getattr(mica.optim, name)([p], differentiable=differentiable, **options)
            for step in range(4):
                p.grad = mica.cos(mica.arange(9, dtype=mica.float64) * (step + 1))
                optimizer.step()
            results.append(p.detach())
        tolerance = 1e-7 if name in ("NAdam", "ASGD") else 1e-12
        mica.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


def test_a_step_is_not_recorded_otherwise():
    p = mica.ones(2, requires_grad=True)
    p.grad = mica.ones(2)
    optimizer = mica.optim.Adam([p])
    optimizer.step()
    assert p.is_leaf and p.grad_fn is None and not optimizer.state[p]["exp_avg"].requires_grad
