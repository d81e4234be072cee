"""States of optimizers: what is saved, and that a run goes on from it."""

import copy
import pickle

import mica
import pytest

ALL = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
]


def leaf(*size):
    return mica.ones(*size, requires_grad=True)


def stepped(optimizer, times=1):
    for _ in range(times):
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = mica.full_like(p, 0.5)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("name", ALL)
def test_goes_on_as_if_nothing_had_happened(name):
    mine = [mica.linspace(-1, 1, 6).reshape(2, 3).requires_grad_(), leaf(4)]
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    optimizer = stepped(getattr(mica.optim, name)(mine, **options), 3)
    theirs = [p.detach().clone().requires_grad_() for p in mine]
    other = getattr(mica.optim, name)(theirs, lr=0.7, **options)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    stepped(optimizer, 3)
    stepped(other, 3)
    for p, q in zip(mine, theirs, strict=True):
        assert mica.equal(p, q)


def test_layout():
    a, b = leaf(2), leaf(3)
    saved = stepped(mica.optim.Adam([{"params": [a]}, {"params": [b]}])).state_dict()
    assert list(saved) == ["state", "param_groups"] and list(saved["state"]) == [0, 1]
    assert [g["params"] for g in saved["param_groups"]] == [[0], [1]]
    step = saved["state"][0]["step"]
    assert step.dtype == mica.float32 and step.shape == () and step.device.type == "cpu"


def test_states_take_the_dtype_of_the_parameter():
    saved = stepped(mica.optim.Adam([leaf(2)])).state_dict()
    p = mica.ones(2, dtype=mica.bfloat16, requires_grad=True)
    optimizer = mica.optim.Adam([p])
    optimizer.load_state_dict(saved)
    assert optimizer.state[p]["exp_avg"].dtype == mica.bfloat16
    assert optimizer.state[p]["step"].dtype == mica.float32
    stepped(optimizer)


def test_old_files_have_numbers_for_counters():
    saved = stepped(mica.optim.Adam([leaf(2)]), 4).state_dict()
    saved["state"][0]["step"] = 4
    del saved["param_groups"][0]["fused"]
    p = leaf(2)
    optimizer = mica.optim.Adam([p])
    optimizer.load_state_dict(saved)
    stepped(optimizer)
    assert optimizer.state[p]["step"].item() == 5 and optimizer.param_groups[0]["fused"] is None


def test_what_does_not_fit():
    saved = mica.optim.SGD([leaf(1), leaf(2)]).state_dict()
    with pytest.raises(ValueError, match="loaded state dict has a different number of parameter groups"):
        mica.optim.SGD([{"params": [leaf(1)]}, {"params": [leaf(1)]}]).load_state_dict(saved)
    with pytest.raises(ValueError, match="contains a parameter group that doesn't match the size"):
        mica.optim.SGD([leaf(1)]).load_state_dict(saved)


def test_hooks():
    optimizer = mica.optim.SGD([leaf(1)], lr=0.5)
    order = []
    optimizer.register_state_dict_pre_hook(lambda o: order.append("pre"))
    optimizer.register_state_dict_pre_hook(lambda o: order.append("first"), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "extra": 1})
    saved = optimizer.state_dict()
    assert saved["extra"] == 1 and order == ["first", "pre"]

    def halve(o, state):
        state = copy.deepcopy(state)
        state["param_groups"][0]["lr"] /= 2
        return state

    optimizer.register_load_state_dict_pre_hook(halve)
    optimizer.register_load_state_dict_post_hook(lambda o: order.append("loaded"))
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.25 and order[-1] == "loaded"


def test_pickle_and_deepcopy():
    for copied in (pickle.loads(pickle.dumps(stepped(mica.optim.AdamW([leaf(2)])))), None):
        optimizer = copied or copy.deepcopy(stepped(mica.optim.AdamW([leaf(2)])))
        p = optimizer.param_groups[0]["params"][0]
        assert optimizer.state[p]["step"].item() == 1
        stepped(optimizer)
        assert optimizer.state[p]["step"].item() == 2


def test_a_momentum_that_was_saved_before_it_was_there():
    p = mica.nn.Parameter(mica.zeros(2))
    opt = mica.optim.SGD([p], lr=1.0, momentum=0.5)
    state = opt.state_dict()
    state["state"] = {0: {"momentum_buffer": None}}
    opt.load_state_dict(state)
    for expected in (-1.0, -2.5, -4.25):  # steps of 1, 1.5 and 1.75
        p.grad = mica.ones(2)
        opt.step()
        assert p.tolist() == [expected, expected]
    assert opt.state[p]["momentum_buffer"].tolist() == [1.75, 1.75]
