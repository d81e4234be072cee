"""A step of an optimizer whose gradients, states or options somebody has spoilt."""

import json
import random
import sys

import mica
from call_runner import run_all
from optim_cases import OPTIMIZERS, options_for, set_gradients, start_values, tensors

NUMBERS = [
    0,
    -1,
    0.0,
    -1.0,
    2.5,
    1e30,
    1e300,
    -1e300,
    1e-320,
    float("nan"),
    float("inf"),
    float("-inf"),
    2**63,
    -(2**64),
]
ODD = [None, "word", [], (), {}, (1, 2), (0.5,), (float("nan"), 2.0), True, 3 + 1j, object(), b"x"]
DTYPES = ["float64", "float32", "bfloat16", "float16", "int64", "int8", "bool", "complex64", "float8_e4m3fn"]


def misfit(draw, like):
    """A tensor in the place of `like` of another shape or on another device."""
    shape = list(like.shape)
    choices = [
        lambda: mica.zeros([*shape, 2], dtype=like.dtype),
        lambda: mica.zeros([s + 1 for s in shape] or [2], dtype=like.dtype),
        lambda: mica.zeros([0, *shape], dtype=like.dtype),
        lambda: mica.empty(shape, dtype=like.dtype, device="meta"),
    ]
    return draw.choice(choices)()


def odd(draw, like):
    """A tensor of another layout, dtype or value, or no tensor at all."""
    shape = list(like.shape)
    choices = [
        lambda: mica.zeros((), dtype=like.dtype).expand(shape),
        lambda: mica.zeros([*shape, 2], dtype=like.dtype)[..., 1],
        lambda: like.detach().t().clone().t() if len(shape) == 2 else like.detach().clone(),
        lambda: mica.zeros(shape).to(getattr(mica, draw.choice(DTYPES))),
        lambda: mica.full(shape, float("nan"), dtype=like.dtype),
        lambda: like.detach(),
        lambda: draw.choice(NUMBERS),
        lambda: draw.choice(ODD),
    ]
    return draw.choice(choices)()


def spoil(draw, optimizer, parameters):
    """Changes one thing; whether the step can tell before it changes anything."""
    what = draw.choice(["state", "state", "state", "gradient", "parameter", "missing", "group", "group", "list"])
    parameter = draw.choice(parameters)
    group, state = optimizer.param_groups[0], optimizer.state.get(parameter) or {}
    replacement = draw.choice([misfit, odd])
    if what == "state" and state:
        key = draw.choice(sorted(state))
        state[key] = replacement(draw, state[key] if isinstance(state[key], mica.Tensor) else parameter)
        return replacement is misfit and state[key].dim() > 0 and key not in ("step", "mu_product", "eta", "mu")
    if what == "gradient":
        parameter.grad = replacement(draw, parameter)
    elif what == "parameter":
        parameter.data = replacement(draw, parameter)
    elif what == "missing" and state:
        del state[draw.choice(sorted(state))]
    elif what == "list":
        group["params"].append(draw.choice([None, parameter, 3, mica.empty(2, device="meta")]))
    else:
        numbers = [*NUMBERS, *ODD, mica.tensor(0.1), mica.tensor([0.1, 0.2]), mica.empty((), device="meta")]
        group[draw.choice(sorted(k for k in group if k != "params"))] = draw.choice(numbers)
    return False


def contents(tensor):
    if not isinstance(tensor, mica.Tensor) or tensor.is_meta:
        return repr(type(tensor))
    return repr(
        (tensor.dtype, tuple(tensor.shape), (tensor.float() if "float8" in str(tensor.dtype) else tensor).tolist())
    )


def step_spoilt(case):
    """The outcome of a step after something has been spoilt: a finding, or nothing."""
    key, seed = case
    draw = random.Random(repr(case))
    name, options = OPTIMIZERS[key]
    parameters = [p.requires_grad_() for p in tensors(mica, start_values(name))]
    try:
        optimizer = getattr(mica.optim, name)(parameters, **options_for(mica, options))
        for step in range(seed % 3):
            set_gradients(mica, parameters, name, step)
            optimizer.step()
        set_gradients(mica, parameters, name, 3)
        tells = spoil(draw, optimizer, parameters)
        if draw.random() < 0.3:
            tells = spoil(draw, optimizer, parameters) and tells
    except Exception:
        return {}
    before = [contents(p) for p in parameters]
    try:
        optimizer.step()
        optimizer.state_dict()
    except Exception as e:
        if isinstance(e, SystemError | UnicodeError) or "internal assert" in str(e).lower():
            return {"finding": f"{type(e).__name__}: {e}"}
        if tells and [contents(p) for p in parameters] != before:
            return {"finding": f"a failed step has changed parameters: {type(e).__name__}: {e}"}
    return {}


def main():
    """Reads cases from the standard input, prints the findings."""
    cases = [tuple(case) for case in json.load(sys.stdin)]
    found = [f"{case}: {outcome['finding']}" for case, outcome in run_all(cases, step_spoilt) if "finding" in outcome]
    json.dump(found, sys.stdout)
