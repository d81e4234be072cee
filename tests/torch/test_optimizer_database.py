"""torch's own database of optimizers: the steps and states of all its inputs, and what is refused; schedules with odd arguments."""

import copy
import warnings

import mica
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's databases need it")

from module_database import carried  # noqa: E402
from operator_database import assert_same, in_mica  # noqa: E402
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

FLAGS = [{}, *({name: True} for name in ("foreach", "fused", "maximize", "capturable", "differentiable"))]
DENSE = [info for info in optim_db if info.optim_cls.__name__ != "SparseAdam"]  # there are no sparse tensors
STEPS = 10
# (optimizer, what torch says): other words, or none.
SAID_DIFFERENTLY = [
    ("ASGD", "If capturable=True"),
    ("NAdam", "If capturable=True"),
    ("", "requires grad is being used in an in-place operation"),  # of a leaf or of its view
]
# State that has another type: a number where torch keeps the learning rate as it was given.
UNCOMPARED_STATE = {"LBFGS": ("t",)}


def numbers(dtype, seed, name):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((3, 4),) if name == "Muon" else ((3, 4), (5,), (), (2, 3, 2))
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def attempt(function):
    try:
        return function(), None
    except Exception as e:
        return None, e


def assert_same_refusal(name, ours, theirs):
    if any(name.startswith(each) and words in str(theirs) for each, words in SAID_DIFFERENTLY):
        return
    assert type(ours).__name__ == type(theirs).__name__, f"{ours!r}, {theirs!r}"
    assert str(ours)[:50] == str(theirs)[:50]


def assert_same_state(ours, theirs, name):
    assert ours["state"].keys() == theirs["state"].keys()
    for index, state in theirs["state"].items():
        own = ours["state"][index]
        assert list(own) == list(state)
        for key, value in state.items():
            if key not in UNCOMPARED_STATE.get(name, ()):
                assert_same(own[key], value, key)
    for own, group in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        assert list(own) == list(group)
        for key, value in group.items():
            assert_same(own[key], value, key)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=["float32", "complex64"])
@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: next(iter(flags), "plain"))
@pytest.mark.parametrize("info", DENSE, ids=lambda info: info.optim_cls.__name__)
def test_steps(info, flags, dtype):
    name = info.optim_cls.__name__
    if name == "LBFGS":  # whose steps over random gradients are far from one another after a few roundings
        dtype = torch.float64 if dtype is torch.float32 else torch.complex128
    for case in info.optim_inputs_func("cpu"):
        keywords = {**case.kwargs, **flags}
        params = [torch.nn.Parameter(each) for each in numbers(dtype, 0, name)]
        own, own_keywords = carried(params), in_mica(keywords)
        theirs, refusal = attempt(lambda: info.optim_cls(params, **keywords))  # noqa: B023 - called at once
        ours, own_refusal = attempt(lambda: getattr(mica.optim, name)(own, **own_keywords))  # noqa: B023
        for step in range(STEPS):
            if refusal or own_refusal:
                break
            for mine, other, grad in zip(own, params, numbers(dtype, step + 1, name), strict=True):
                other.grad, mine.grad = grad, in_mica(grad)
            closure = {"closure": lambda: 1.0} if name == "LBFGS" else {}
            with torch.no_grad() if "differentiable" not in flags else torch.enable_grad():
                refusal = attempt(lambda: theirs.step(**closure))[1]  # noqa: B023
            own_refusal = attempt(lambda: ours.step(**closure))[1]  # noqa: B023
        if refusal or own_refusal:
            assert_same_refusal(name, own_refusal, refusal)
            continue
        for mine, other in zip(own, params, strict=True):
            assert_same(mine, other.detach(), f"{name} {case.desc}")
        assert_same_state(ours.state_dict(), theirs.state_dict(), name)
        assert repr(ours) == repr(theirs)


def shared(params, seen):
    """Parameters carried over once each, with their gradients."""
    if isinstance(params, dict):
        return {key: shared(value, seen) for key, value in params.items()}
    if isinstance(params, list | tuple):
        return type(params)(shared(each, seen) for each in params)
    if isinstance(params, torch.Tensor) and id(params) not in seen:
        seen[id(params)] = carried(params)
        if params.grad is not None:
            seen[id(params)].grad = in_mica(params.grad)
    return seen[id(params)] if isinstance(params, torch.Tensor) else in_mica(params)


def said(make, params, keywords, steps):
    """The exception of a call, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer, refusal = attempt(lambda: make(params, **keywords))
        if steps and optimizer is not None:
            refusal = attempt(optimizer.step)[1]
    return type(refusal).__name__, str(refusal)[:60], [str(each.message)[:60] for each in caught]


@pytest.mark.parametrize("info", DENSE, ids=lambda info: info.optim_cls.__name__)
def test_wrong_arguments(info):
    make = getattr(mica.optim, info.optim_cls.__name__)
    for wrong in info.optim_error_inputs_func("cpu", torch.float32):
        case, steps = wrong.optimizer_error_input, wrong.error_on is OptimizerErrorEnum.STEP_ERROR
        ours = said(make, shared(case.params, {}), in_mica(case.kwargs), steps)
        assert ours == said(info.optim_cls, case.params, case.kwargs, steps), case.desc


# ---- schedules -----------------------------------------------------------------------------------------------------

SCHEDULES = [
    ("LambdaLR", {"lr_lambda": lambda e: 1 / (e + 1)}),
    ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9}),
    ("StepLR", {"step_size": 2.5}),
    ("StepLR", {"step_size": 0}),
    ("MultiStepLR", {"milestones": [5, 2, 2]}),
    ("ConstantLR", {"factor": 0.0, "total_iters": 3}),
    ("ConstantLR", {"factor": 2}),
    ("LinearLR", {"total_iters": 0}),
    ("LinearLR", {"start_factor": 1, "end_factor": 0}),
    ("LinearLR", {"start_factor": 0}),
    ("ExponentialLR", {"gamma": 0}),
    ("CosineAnnealingLR", {"T_max": 3.5, "eta_min": 0.01}),
    ("CosineAnnealingLR", {"T_max": 0}),
    ("PolynomialLR", {"total_iters": 3, "power": 0.5}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2.5}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "exp_range", "gamma": 0.9}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "mode": "wrong"}),
    ("CyclicLR", {"base_lr": [0.01], "max_lr": 0.1}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 12, "three_phase": True}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 5}),
    ("OneCycleLR", {"max_lr": 0.1, "total_steps": 12, "pct_start": 0.0}),
    ("OneCycleLR", {"max_lr": 0.1, "epochs": 2}),
    ("ReduceLROnPlateau", {"patience": 0, "cooldown": 2}),
    ("ReduceLROnPlateau", {"mode": "max", "threshold_mode": "abs", "patience": 0, "min_lr": [0.05, 0.01]}),
    ("ReduceLROnPlateau", {"factor": 1.0}),
]
USES = ["", "wrong order", "last_epoch", "last_epoch without initial_lr", "step(epoch)", "reloaded"]
METRICS = [1.0, 0.9, 0.95, 0.95, 0.94, 0.94, 0.8, 0.8, 0.8, 0.81, 0.79, float("nan"), 0.79, 0.79]


def number(value):
    if isinstance(value, torch.Tensor | mica.Tensor):
        return value.item()
    if isinstance(value, dict):
        return {key: number(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [number(each) for each in value]
    return "function" if callable(value) else value


def history(library, name, keywords, use):
    """All that can be seen of a schedule: rates, states, warnings, and the exception that ended it."""
    seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            params = [library.nn.Parameter(library.ones(n)) for n in (2, 3)]
            optimizer = library.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.02}], 0.1, 0.9)
            if use == "last_epoch":
                for group in optimizer.param_groups:
                    group["initial_lr"] = group["lr"]
            if use.startswith("last_epoch"):
                keywords = {**keywords, "last_epoch": 4}
            make = getattr(library.optim.lr_scheduler, name)
            schedule = make(optimizer, **keywords)
            for i, metric in enumerate(METRICS):
                for each in params:
                    each.grad = library.ones_like(each)
                arguments = (metric,) if name == "ReduceLROnPlateau" else ()
                if use == "step(epoch)" and i > 3:
                    arguments = (*arguments, i * 2)
                order = [optimizer.step, lambda: schedule.step(*arguments)]  # noqa: B023 - called at once
                for step in reversed(order) if use == "wrong order" else order:
                    step()
                seen.append([number({k: g[k] for k in ("lr", "momentum", "initial_lr") if k in g}) for g in
                             optimizer.param_groups])  # fmt: skip
                seen.append(number(schedule.get_last_lr()))
                if i == 6:
                    state = schedule.state_dict()
                    seen.append(number(state))
                    if use == "reloaded":
                        state = copy.deepcopy({k: v for k, v in state.items() if not callable(v)})
                        schedule = make(optimizer, **keywords)
                        schedule.load_state_dict(state)
        except Exception as e:
            seen.append((type(e).__name__, str(e)))
    return [*seen, [(each.category.__name__, str(each.message)[:60]) for each in caught]]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name, keywords", SCHEDULES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(SCHEDULES)])
def test_schedules(name, keywords, use):
    theirs, ours = history(torch, name, keywords, use), history(mica, name, keywords, use)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert same_numbers(mine, other), f"{mine}, {other}"


def same_numbers(mine, other):
    if isinstance(other, dict):
        return list(mine) == list(other) and all(same_numbers(mine[key], other[key]) for key in other)
    if isinstance(other, list | tuple):
        return len(mine) == len(other) and all(map(same_numbers, mine, other))
    return mine == (pytest.approx(other, rel=1e-12, nan_ok=True) if isinstance(other, float) else other)
