"""Schedules: torch's recorded rates, saving, warnings, errors."""

import copy
import json
import math
import pathlib
import warnings

import mica
import optim_cases as cases
import pytest
from mica.optim import lr_scheduler as schedulers

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "recorded" / "optim.json").read_text())["schedules"]


@pytest.mark.parametrize("case", cases.SCHEDULES)
def test_recorded_rates(case):
    assert cases.rates(mica, case) == RECORDED[case]


@pytest.mark.parametrize("case", cases.SCHEDULES)
def test_goes_on_from_a_saved_state(case):
    optimizers = [cases.two_groups(mica) for _ in range(2)]
    one, other = (cases.SCHEDULES[case](mica, o) for o in optimizers)
    for step in range(6):
        optimizers[0].step()
        cases.step_schedule(case, one, step)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for step in range(6, 16):
        for optimizer, schedule in zip(optimizers, (one, other), strict=True):
            optimizer.step()
            cases.step_schedule(case, schedule, step)
        assert one.get_last_lr() == other.get_last_lr() == [g["lr"] for g in optimizers[1].param_groups]
    assert "optimizer" not in one.state_dict()


def sgd(lr=0.1):
    return mica.optim.SGD([mica.zeros(1, requires_grad=True)], lr=lr, momentum=0.9)


def test_layout_of_the_state():
    schedule = schedulers.StepLR(sgd(), 3)
    assert list(schedule.state_dict()) == [
        "step_size", "gamma", "base_lrs", "last_epoch", "_step_count", "_is_initial", "_get_lr_called_within_step",
        "_last_lr",
    ]  # fmt: skip


def test_a_tensor_stays_the_same_tensor():
    lr = mica.tensor(0.5)
    optimizer = sgd(lr)
    schedule = schedulers.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] is lr and lr.item() == 0.25
    assert schedule.base_lrs[0].item() == 0.5 and schedule.get_last_lr()[0] is not lr


def test_order_of_calls():
    optimizer = sgd()
    schedule = schedulers.StepLR(optimizer, 3)
    with pytest.warns(UserWarning, match=r"Detected call of `lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        schedule.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule.step()
    optimizer = sgd()
    schedule = schedulers.StepLR(optimizer, 3)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match="has been overridden after learning rate scheduler initialization"):
        schedule.step()


def test_questions_outside_of_a_step():
    schedule = schedulers.ExponentialLR(sgd(), 0.5)
    with pytest.warns(UserWarning, match=r"please use `get_last_lr\(\)`"):
        schedule.get_lr()
    schedule.optimizer.step()
    with pytest.warns(UserWarning, match="The epoch parameter in"):
        schedule.step(3)
    assert schedule.get_last_lr() == [0.1 * 0.5**3]


def test_closed_forms():
    for make in (
        lambda o: schedulers.StepLR(o, 3, 0.5),
        lambda o: schedulers.MultiStepLR(o, [2, 5], 0.5),
        lambda o: schedulers.ConstantLR(o, 0.5, 4),
        lambda o: schedulers.LinearLR(o, 0.5, total_iters=4),
        lambda o: schedulers.PolynomialLR(o, 10, 2.0),
        lambda o: schedulers.CosineAnnealingLR(o, 10),
    ):
        walked, jumped = make(sgd()), make(sgd())
        for _ in range(7):
            walked.optimizer.step()
            walked.step()
        jumped.optimizer.step()
        with pytest.warns(UserWarning, match="The epoch parameter"):
            jumped.step(7)
        assert walked.get_last_lr() == pytest.approx(jumped.get_last_lr())


def test_resuming():
    optimizer = sgd()
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified"):
        schedulers.StepLR(optimizer, 3, last_epoch=4)
    optimizer.param_groups[0]["initial_lr"] = 0.1
    assert schedulers.CosineAnnealingLR(optimizer, 10, last_epoch=4).last_epoch == 5


def test_functions_that_are_objects_are_saved():
    class Factor:
        def __init__(self, base):
            self.base = base

        def __call__(self, epoch):
            return self.base**epoch

    one = schedulers.LambdaLR(sgd(), Factor(0.5))
    other = schedulers.LambdaLR(sgd(), Factor(0.9))
    other.load_state_dict(one.state_dict())
    assert other.lr_lambdas[0].base == 0.5
    assert schedulers.LambdaLR(sgd(), lambda e: 1).state_dict()["lr_lambdas"] == [None]


def test_plateau():
    optimizer = sgd()
    schedule = schedulers.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    schedule.step(mica.tensor(1.0))
    schedule.step(float("nan"))
    assert optimizer.param_groups[0]["lr"] == 0.05 and schedule.best == 1.0
    optimizer.add_param_group({"params": mica.zeros(1, requires_grad=True)})
    schedule.step(2.0)
    assert [g["lr"] for g in optimizer.param_groups] == [0.025, 0.05]
    assert schedulers.ReduceLROnPlateau(sgd(), mode="max").best == -math.inf


ERRORS = [
    (lambda: schedulers.StepLR("sgd", 3), TypeError, "str is not an Optimizer"),
    (lambda: schedulers.StepLR(sgd(), 3, verbose=True), TypeError, "unexpected keyword argument 'verbose'"),
    (lambda: schedulers.LambdaLR(sgd(), [lambda e: 1] * 2), ValueError, "Expected 1 lr_lambdas, but got 2"),
    (lambda: schedulers.MultiplicativeLR(sgd(), 0.5), TypeError, "lr_lambda should be a function, but got float"),
    (lambda: schedulers.ConstantLR(sgd(), 1.5), ValueError, "expected to be between 0 and 1"),
    (lambda: schedulers.LinearLR(sgd(), 0.0), ValueError, "Starting multiplicative factor expected"),
    (lambda: schedulers.LinearLR(sgd(), end_factor=2), ValueError, "Ending multiplicative factor expected"),
    (lambda: schedulers.SequentialLR(sgd(), [], []), ValueError, "expects at least one scheduler"),
    (lambda: schedulers.ChainedScheduler([]), ValueError, "expects at least one scheduler to be chained"),
    (
        lambda: schedulers.ChainedScheduler([schedulers.StepLR(sgd(), 1), schedulers.StepLR(sgd(), 1)]),
        ValueError,
        "expects all schedulers to belong to the same optimizer",
    ),
    (
        lambda: schedulers.ChainedScheduler([schedulers.ReduceLROnPlateau(sgd())]),
        ValueError,
        "does not support `ReduceLROnPlateau` scheduler",
    ),
    (lambda: schedulers.ReduceLROnPlateau(sgd(), factor=1.0), ValueError, "Factor should be < 1.0."),
    (lambda: schedulers.ReduceLROnPlateau(sgd(), mode="best"), ValueError, "mode best is unknown!"),
    (lambda: schedulers.ReduceLROnPlateau(sgd(), min_lr=[0, 0]), ValueError, "expected 1 min_lrs, got 2"),
    (lambda: schedulers.CosineAnnealingWarmRestarts(sgd(), 0), ValueError, "Expected positive integer T_0, but got 0"),
    (lambda: schedulers.OneCycleLR(sgd(), 0.1), ValueError, "You must define either total_steps OR"),
    (lambda: schedulers.OneCycleLR(sgd(), 0.1, total_steps=-1), ValueError, "Expected positive integer total_steps"),
    (lambda: schedulers.OneCycleLR(sgd(), 0.1, 10, pct_start=2.0), ValueError, "Expected float between 0 and 1"),
    (lambda: schedulers.CyclicLR(sgd(), 0.1, 1.0, mode="round"), ValueError, "mode is invalid and scale_fn is None"),
    (lambda: schedulers.CyclicLR(sgd(), [0.1] * 3, 1.0), ValueError, "base_lr must have the same length"),
]


@pytest.mark.parametrize("make, kind, words", ERRORS)
def test_errors(make, kind, words):
    with pytest.raises(kind, match=words):
        make()


def test_one_cycle_ends():
    optimizer = sgd()
    schedule = schedulers.OneCycleLR(optimizer, 0.1, total_steps=3)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    with pytest.raises(ValueError, match="Tried to step 4 times. The specified number of total steps is 3"):
        schedule.step()


def test_beta1_is_the_momentum_of_adam():
    optimizer = mica.optim.Adam([mica.zeros(1, requires_grad=True)])
    schedulers.OneCycleLR(optimizer, 0.1, total_steps=10)
    assert optimizer.param_groups[0]["betas"] == (0.95, 0.999)
    plain = mica.optim.Adagrad([mica.zeros(1, requires_grad=True)])
    with pytest.raises(ValueError, match="optimizer must support momentum or beta1"):
        schedulers.OneCycleLR(plain, 0.1, total_steps=10)
