"""weak, module_tracker, collect_env, deterministic, allow_mutation_on_saved_tensors."""

import gc

import mica as torch
import pytest
from mica import nn
from mica.utils.module_tracker import ModuleTracker
from mica.utils.weak import TensorWeakRef, WeakIdKeyDictionary


def test_entries_go_with_their_keys():
    a, b = torch.ones(2), torch.ones(2)
    table = WeakIdKeyDictionary({a: 1})
    table[b] = 2
    assert table[a] == 1 and table[b] == 2 and a in table and torch.ones(2) not in table
    reference = TensorWeakRef(a)
    del a
    gc.collect()
    assert reference() is None and len(table) == 1 and list(table.values()) == [2]


def test_a_tracker_knows_where_it_is():
    seen = {}

    class Inner(nn.Module):
        def forward(self, x):
            seen["forward"] = set(tracker.parents)
            y = x.sin()
            y.register_hook(lambda grad: seen.update(backward=set(tracker.parents), is_bw=tracker.is_bw))
            return y * 2

    model = nn.Sequential(nn.Linear(2, 2), Inner())
    with ModuleTracker() as tracker:
        loss = model(torch.ones(1, 2)).sum()
        assert tracker.parents == {"Global"}
        loss.backward()
    assert seen["forward"] == {"Global", "Sequential", "Sequential.1"}
    assert "Sequential.1" in seen["backward"] and seen["is_bw"]
    assert tracker.parents == {"Global"}


def test_saved_tensors_may_change():
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = x.clone()
        loss = (y**2).sum()
        y.sin_()
        loss.backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_saved_tensors_are_copied_when_they_change():
    graph = torch.autograd.graph
    with graph.allow_mutation_on_saved_tensors() as context:
        a = torch.rand(2, 3, requires_grad=True)
        b = a.clone()
        squares, cubes = b**2, b**3
        assert len(context.cloned) == 0 and len(context.tid_to_weakhandle) == 1
        b[1:].zero_()  # a part of it, elsewhere in its memory
        assert len(context.cloned) == 1
        squares.sum().backward()
        assert torch.allclose(a.grad, 2 * a)
        del squares, cubes
        assert len(context.cloned) == 0
        with pytest.raises(RuntimeError, match="contexts cannot be nested"), graph.allow_mutation_on_saved_tensors():
            pass
        later = (a**2).sum()
    with pytest.raises(AssertionError, match="Trying to backward outside"):
        later.backward()


def test_changes_that_no_mode_sees_are_refused():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        loss = (weight**2).sum()
        weight.grad = torch.ones(2)
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_the_report_of_a_machine():
    from mica.utils import collect_env

    info = collect_env.get_env_info()
    text = collect_env.pretty_str(info)
    assert info._fields[:3] == ("torch_version", "is_debug_build", "cuda_compiled_version")
    for line in (
        "PyTorch version: ",
        "OS: ",
        "Python platform: ",
        "Is CUDA available: ",
        "Versions of relevant libraries:",
    ):
        assert f"\n{line}" in text
    assert "None" not in text and "[pip] numpy==" in text
    assert collect_env.run(["no-such-program"])[0] == 127
    assert collect_env.run_and_parse_first_match(collect_env.run, ["echo", "version 3.4"], r"version (.*)") == "3.4"


def test_switch_of_deterministic_memory():
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = False
    assert torch.utils.deterministic.fill_uninitialized_memory is False
    torch.utils.deterministic.fill_uninitialized_memory = before
    with pytest.raises(RuntimeError, match="expected a bool, but got int"):
        torch.utils.deterministic.fill_uninitialized_memory = 1
