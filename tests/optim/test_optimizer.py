"""What all optimizers share: groups, states, hooks, saving, errors."""

import copy

import mica
import pytest
from mica.optim.optimizer import (
    Optimizer,
    _use_grad_for_differentiable,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)


def leaf(*size):
    return mica.ones(*size, requires_grad=True)


def stepped(optimizer, times=1):
    for _ in range(times):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = mica.full_like(p, 0.5)
        optimizer.step()
    return optimizer


class TestGroups:
    def test_defaults_and_options_of_a_group(self):
        a, b = leaf(2), leaf(3)
        optimizer = mica.optim.SGD([{"params": a}, {"params": [b], "lr": 0.5}], lr=0.1)
        assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.5]
        assert optimizer.param_groups[0]["params"][0] is a
        assert list(optimizer.param_groups[0]) == [
            "params", "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach",
            "differentiable", "fused",
        ]  # fmt: skip

    def test_generators_and_names(self):
        optimizer = mica.optim.Adam((name, p) for name, p in [("w", leaf(2)), ("b", leaf(1))])
        assert optimizer.param_groups[0]["param_names"] == ["w", "b"]
        assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["w", "b"]
        with pytest.raises(ValueError, match="all optimizer param groups should be with/without names"):
            optimizer.add_param_group({"params": [leaf(1)]})

    def test_added_later(self):
        optimizer = stepped(mica.optim.Adam([leaf(2)]))
        optimizer.add_param_group({"params": [leaf(3)], "lr": 1.0})
        stepped(optimizer)
        assert [s["step"].item() for s in optimizer.state.values()] == [2, 1]

    def test_bad_groups(self):
        a = leaf(2)
        with pytest.raises(ValueError, match="optimizer got an empty parameter list"):
            mica.optim.SGD([])
        with pytest.raises(TypeError, match="params argument given to the optimizer should be an iterable of Tensors"):
            mica.optim.SGD(a)
        with pytest.raises(TypeError, match="optimizer can only optimize Tensors, but one of the params is int"):
            mica.optim.SGD([a, 3])
        with pytest.raises(TypeError, match="optimizer parameters need to be organized in ordered collections"):
            mica.optim.SGD([{"params": {a}}])
        with pytest.raises(TypeError, match="param_group must be a dict"):
            mica.optim.SGD([a]).add_param_group([leaf(1)])
        with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
            mica.optim.SGD([a * 2])
        with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
            mica.optim.SGD([{"params": [a]}, {"params": [a]}])
        with pytest.raises(ValueError, match="all optimizer params should be with/without names"):
            mica.optim.SGD([("a", a), leaf(1)])
        with pytest.warns(UserWarning, match="optimizer contains a parameter group with duplicate parameters"):
            mica.optim.SGD([a, a])

    def test_required_options(self):
        class Needy(Optimizer):
            def step(self, closure=None):
                pass

        with pytest.raises(ValueError, match="didn't specify a value of required optimization parameter lr"):
            Needy([leaf(1)], {"lr": required})
        assert repr(required) == "<required parameter>"

    def test_non_leaf_that_retains_its_gradient(self):
        p = leaf(2) * 2
        p.retain_grad()
        mica.optim.SGD([p])


BAD_OPTIONS = [
    ("SGD", {"lr": -1.0}, "Invalid learning rate: -1.0"),
    ("SGD", {"momentum": -0.1}, "Invalid momentum value: -0.1"),
    ("SGD", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
    ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
    ("SGD", {"lr": mica.ones(2)}, "Tensor lr must be 1-element"),
    ("Adam", {"lr": float("nan")}, "Invalid learning rate: nan"),
    ("Adam", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
    ("Adam", {"betas": (0.9, -1.0)}, "Invalid beta parameter at index 1: -1.0"),
    ("Adam", {"betas": (0, 0.9)}, "betas must be either both floats or both Tensors"),
    ("Adam", {"eps": -1e-8}, "Invalid epsilon value: -1e-08"),
    ("Adam", {"weight_decay": -1}, "Invalid weight_decay value: -1"),
    ("Adam", {"lr": mica.tensor(0.1), "foreach": True}, "lr as a Tensor is not supported"),
    ("AdamW", {"lr": -1}, "Invalid learning rate: -1"),
    ("Adamax", {"betas": (0.0, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
    ("NAdam", {"momentum_decay": -0.1}, "Invalid momentum_decay value: -0.1"),
    ("RAdam", {"eps": -1}, "Invalid epsilon value: -1"),
    ("RMSprop", {"alpha": -0.1}, "Invalid alpha value: -0.1"),
    ("Adagrad", {"initial_accumulator_value": -1}, "Invalid initial_accumulator_value value: -1"),
    ("Adadelta", {"rho": 1.1}, "Invalid rho value: 1.1"),
    ("Rprop", {"etas": (1.0, 0.5)}, "Invalid eta values: 1.0, 0.5"),
    ("ASGD", {"weight_decay": -0.5}, "Invalid weight_decay value: -0.5"),
    ("Adafactor", {"d": 0.0}, "Clipping threshold d should be >= 1 but is: 0.0"),
    ("Adafactor", {"beta2_decay": 0.8}, "beta2_decay should be <= 0 but is: 0.8"),
    ("Adafactor", {"eps": (-1e-3, 1e-3)}, "epsilon1 should be >= 0 but is: -0.001"),
    ("SparseAdam", {"lr": 0.0}, "Invalid learning rate: 0.0"),
    ("LBFGS", {"lr": -1}, "Invalid learning rate: -1"),
    ("Muon", {}, "Muon only supports 2D parameters whereas we found a parameter with size: torch.Size"),
]


@pytest.mark.parametrize("name, options, words", BAD_OPTIONS)
def test_bad_options(name, options, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        getattr(mica.optim, name)([leaf(2)], **options)


def test_flags_that_exclude_each_other():
    for name in ("SGD", "Adam", "AdamW", "Adagrad"):
        with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
            getattr(mica.optim, name)([leaf(1)], fused=True, foreach=True)
        with pytest.raises(RuntimeError, match="`fused` does not support `differentiable`"):
            getattr(mica.optim, name)([leaf(1)], fused=True, differentiable=True)


def test_what_a_device_cannot_do():
    p = leaf(2)
    p.grad = mica.ones(2)
    with pytest.raises(AssertionError, match="If capturable=True, params and state_steps must be on supported devices"):
        mica.optim.Adam([p], capturable=True).step()
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        mica.optim.SparseAdam([p]).step()
    c = mica.ones(2, dtype=mica.complex64, requires_grad=True)
    c.grad = mica.ones(2, dtype=mica.complex64)
    with pytest.raises(RuntimeError, match="`fused=True` requires all the params to be floating point Tensors"):
        mica.optim.Adam([c], fused=True).step()
    with pytest.raises(ValueError, match="SparseAdam does not support complex parameters"):
        mica.optim.SparseAdam([c])


class TestSteps:
    def test_closure(self):
        p = mica.tensor([2.0], requires_grad=True)
        optimizer = mica.optim.SGD([p], lr=0.1)

        def closure():
            assert mica.is_grad_enabled()
            optimizer.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        with mica.no_grad():
            assert optimizer.step(closure).item() == 4
        assert p.item() == pytest.approx(1.6)
        assert optimizer.step() is None

    def test_zero_grad(self):
        p = leaf(2)
        optimizer = mica.optim.SGD([p, leaf(3)])
        p.grad = mica.ones(2)
        grad = p.grad
        optimizer.zero_grad(set_to_none=False)
        assert p.grad is grad and grad.tolist() == [0, 0]
        q = leaf(2)
        p.grad = q * 2
        optimizer.zero_grad(set_to_none=False)
        assert p.grad.tolist() == [0, 0] and p.grad.grad_fn is None and not p.grad.requires_grad
        optimizer.zero_grad()
        assert p.grad is None

    def test_hooks(self):
        calls = []
        p = leaf(1)
        p.grad = mica.ones(1)
        optimizer = mica.optim.SGD([p], lr=1.0)
        handles = [
            register_optimizer_step_pre_hook(lambda o, a, k: calls.append("global pre")),
            optimizer.register_step_pre_hook(lambda o, a, k: calls.append("pre")),
            optimizer.register_step_post_hook(lambda o, a, k: calls.append("post")),
            register_optimizer_step_post_hook(lambda o, a, k: calls.append("global post")),
        ]
        optimizer.step()
        assert calls == ["global pre", "pre", "post", "global post"]
        for handle in handles:
            handle.remove()
        optimizer.step()
        assert len(calls) == 4

    def test_pre_hook_changes_arguments(self):
        p = leaf(1)
        optimizer = mica.optim.SGD([p])
        handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: ((args[0], lambda: 7), kwargs))
        assert optimizer.step() == 7
        handle.remove()
        optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
        with pytest.raises(RuntimeError, match="must return None or a tuple of"):
            optimizer.step()

    def test_own_optimizer(self):
        class Signs(Optimizer):
            def __init__(self, params, lr=0.1):
                super().__init__(params, {"lr": lr, "differentiable": False})

            @_use_grad_for_differentiable
            def step(self, closure=None):
                assert not mica.is_grad_enabled()
                for group in self.param_groups:
                    for p in group["params"]:
                        self.state[p].setdefault("count", 0)
                        self.state[p]["count"] += 1
                        p.add_(p.grad.sign(), alpha=-group["lr"])

        seen = []
        p = leaf(2)
        optimizer = Signs([p])
        optimizer.register_step_post_hook(lambda o, a, k: seen.append(o))
        stepped(optimizer, 2)
        assert p.tolist() == pytest.approx([0.8, 0.8]) and seen == [optimizer, optimizer]
        assert optimizer.state[p] == {"count": 2}
        with pytest.raises(NotImplementedError):
            Optimizer([leaf(1)], {}).step()


def test_repr():
    assert repr(mica.optim.Adagrad([leaf(1)], lr=0.5)) == (
        "Adagrad (\nParameter Group 0\n    differentiable: False\n    eps: 1e-10\n    foreach: None\n    fused: None\n"
        "    initial_accumulator_value: 0\n    lr: 0.5\n    lr_decay: 0\n    maximize: False\n    weight_decay: 0\n)"
    )


def test_functions_beside_the_classes():
    from mica.optim.adam import adam
    from mica.optim.sgd import sgd

    p, q = leaf(3), leaf(3)
    optimizer = stepped(mica.optim.SGD([p], lr=0.1, momentum=0.9))
    buffers = [None]
    with mica.no_grad():
        sgd(
            [q],
            [mica.full((3,), 0.5)],
            buffers,
            weight_decay=0,
            momentum=0.9,
            lr=0.1,
            dampening=0,
            nesterov=False,
            maximize=False,
        )
    assert mica.equal(p, q) and mica.equal(buffers[0], optimizer.state[p]["momentum_buffer"])

    p, q = leaf(3), leaf(3)
    stepped(mica.optim.Adam([p]))
    states = [[mica.zeros(3)], [mica.zeros(3)], [], [mica.tensor(0.0)]]
    adam(
        [q],
        [mica.full((3,), 0.5)],
        *states,
        amsgrad=False,
        beta1=0.9,
        beta2=0.999,
        lr=1e-3,
        weight_decay=0,
        eps=1e-8,
        maximize=False,
    )
    assert mica.equal(p, q) and states[3][0].item() == 1
    with pytest.raises(RuntimeError, match="API has changed, `state_steps` argument must contain"):
        adam(
            [q],
            [mica.ones(3)],
            *states[:3],
            [1],
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=1e-3,
            weight_decay=0,
            eps=1e-8,
            maximize=False,
        )


def test_profiles_name_the_step():
    optimizer = mica.optim.SGD([leaf(2)])
    with mica.autograd.profiler.profile() as profile:
        stepped(optimizer)
        optimizer.zero_grad()
    names = {event.name for event in profile.function_events}
    assert {"Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"} <= names


def test_other_parameters_for_a_block():
    p, q = leaf(2), mica.full((2,), 5.0, requires_grad=True)
    optimizer = stepped(mica.optim.SGD([p], lr=1.0, momentum=0.5))
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["lr"] = 0.1
    q.grad = mica.ones(2)
    with mica.optim.swap_in_optimizer_params_and_state(optimizer, {"q": q}, state):
        optimizer.step()
    assert q.tolist() == pytest.approx([4.875, 4.875]) and p.tolist() == [0.5, 0.5]
    assert state["state"][0]["momentum_buffer"].tolist() == [1.25, 1.25]
    assert optimizer.param_groups[0]["lr"] == 1.0 and optimizer.param_groups[0]["params"][0] is p
    with (
        pytest.raises(RuntimeError, match="different number of parameter groups"),
        mica.optim.swap_in_optimizer_params_and_state(optimizer, {"q": q}, {"state": {}, "param_groups": []}),
    ):
        pass
