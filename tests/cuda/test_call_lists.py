"""Compiled functions on a GPU whose calls C makes again: their results, and what a list cannot stand for."""

import sys
import threading
from pathlib import Path

import mica as torch
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
from calls_made_again import EARLY, agree, blocks, made_by_c, reasons

functional = torch.nn.functional
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


@pytest.fixture(autouse=True)
def replays_begin_early(monkeypatch):
    for place, name, value in EARLY:
        monkeypatch.setattr(place, name, value)


def drawn():
    return torch.randn(3, 8, device="cuda")


def test_a_model_is_made_again():
    model = blocks().cuda()
    compiled = torch.compile(model)
    assert agree(compiled, model, 10, drawn) == 7, reasons(compiled)
    model[0].first.weight.mul_(2)  # weights may change
    assert agree(compiled, model, 3, drawn) == 3
    model[0].scale = 2.0
    assert agree(compiled, model, 1, drawn) == 0 and agree(compiled, model, 5, drawn) > 0
    on_cpu = blocks()
    assert agree(torch.compile(on_cpu), on_cpu) > 0


def test_defaults(monkeypatch):
    monkeypatch.undo()
    model = blocks().cuda()
    compiled = torch.compile(model)
    assert agree(compiled, model, 18, drawn) == 0 and agree(compiled, model, 20, drawn) >= 10, reasons(compiled)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    model = blocks().cuda()
    compiled = torch.compile(model)
    for _ in range(8):
        x = drawn()
        with torch.autocast("cuda", dtype):
            assert torch.equal(compiled(x), model(x))
    assert made_by_c(compiled) > 3, reasons(compiled)
    agree(compiled, model, 4, drawn)


def test_random_numbers_come_from_the_same_stream():
    model = blocks(dropout=0.5).cuda().train()
    compiled = torch.compile(model)
    results = []
    for function in (model, compiled):
        torch.manual_seed(5)
        x = torch.ones(3, 8, device="cuda")
        results.append([function(x) for _ in range(9)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert made_by_c(compiled) > 3, reasons(compiled)


def test_what_is_changed_in_place():
    def plain(x):
        x[0].mul_(2)
        x.add_(1)
        return x.view(-1)[2:]

    compiled = torch.compile(plain)
    assert agree(compiled, plain, 6, drawn) > 0
    models = [torch.nn.BatchNorm1d(8).cuda().train().requires_grad_(False) for _ in range(2)]
    compiled = torch.compile(models[0])
    assert agree(compiled, models[1], 8, drawn) > 0, reasons(compiled)
    assert torch.equal(models[0].running_var, models[1].running_var)


def test_calls_run_on_the_stream_of_the_caller():
    model = blocks().cuda()
    compiled = torch.compile(model)
    agree(compiled, model, 6, drawn)
    before = made_by_c(compiled)
    x, y, work = torch.zeros(3, 8, device="cuda"), drawn(), torch.randn(4096, 4096, device="cuda")
    want = model(y)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(10):  # on another stream `got` would be there before `x`
            work = work @ work
        x.copy_(y)
        got = compiled(x)
    side.synchronize()
    assert torch.equal(got, want) and made_by_c(compiled) == before + 1


def with_a_stream(side):
    def plain(x):
        y = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = y + 1
        torch.cuda.current_stream().wait_stream(side)
        return y * 3

    return plain


def with_an_event(event):
    def plain(x):
        y = x * 2
        event.record()
        return y + 1

    return plain


def test_what_orders_the_gpus_work_is_not_made_again():
    for plain in (with_a_stream(torch.cuda.Stream()), with_an_event(torch.cuda.Event())):
        compiled = torch.compile(plain)
        assert agree(compiled, plain, 9, drawn) == 0
        assert "it calls _" in reasons(compiled)

    def emptied(x):
        y = x * 2
        torch.cuda.empty_cache()
        return y + 1

    compiled = torch.compile(emptied)
    assert agree(compiled, emptied, 9, drawn) == 0 and "_empty_cache" in reasons(compiled)

    def synchronized(x):
        y = x * 2
        torch.cuda.synchronize()
        return y + 1

    compiled = torch.compile(synchronized)
    assert agree(compiled, synchronized, 9, drawn) == 0 and "synchronize" in reasons(compiled)


def test_values_that_are_asked_for():
    def plain(x):
        return x * 2 if x.sum() > 0 else x - 1

    compiled = torch.compile(plain)
    assert agree(compiled, plain, 12, drawn) == 0


def test_tensors_of_both_devices():
    def plain(x):
        return (x.cpu() * 2 + 1).to(x.device) + table[0]

    table = torch.arange(8.0)
    table = table[None].expand(3, 8).cuda()
    compiled = torch.compile(plain)
    agree(compiled, plain, 9, drawn)


def test_lists_in_a_graph_of_the_programs_own():
    model = blocks().cuda()
    compiled = torch.compile(model)
    agree(compiled, model, 6, drawn)
    x = drawn()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    for _ in range(3):
        x.copy_(drawn())
        graph.replay()
        assert torch.equal(y, model(x))

    fresh = torch.compile(blocks().cuda())
    with torch.no_grad():
        fresh(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(6):  # nothing is observed or compared meanwhile
                y = fresh(x)
        graph.replay()
    assert torch.equal(y, model(x)) and made_by_c(fresh) == 0


def test_several_threads():
    model = blocks().cuda()
    compiled = torch.compile(model)
    agree(compiled, model, 6, drawn)
    wrong = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                x = drawn()
                if not torch.equal(compiled(x), model(x)):
                    wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
