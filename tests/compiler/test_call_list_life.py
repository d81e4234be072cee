"""Compiled functions on the CPU whose calls C makes again: what they keep, when they give up, threads, nesting."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import mica as torch
import pytest
from calls_made_again import agree, blocks, call_of
from mica._dynamo.replay.calls import Unasked

pytestmark = pytest.mark.usefixtures("replays_begin_early")


def test_it_goes_with_its_model():
    model = blocks()
    compiled = torch.compile(model)
    assert agree(compiled, model) > 0
    seen = weakref.ref(model[0]), weakref.ref(call_of(compiled).replayed)
    del compiled, model
    gc.collect()
    assert [each() for each in seen] == [None, None]


def test_old_weights_go():
    model = blocks()
    compiled = torch.compile(model)
    old = weakref.ref(model[0].first.weight)
    for _ in range(4):
        assert agree(compiled, model) > 0
        model[0].first.weight = torch.nn.Parameter(torch.randn(16, 8), False)
    agree(compiled, model)
    gc.collect()
    assert old() is None


def test_it_gives_up(monkeypatch):
    monkeypatch.setattr(Unasked, "most_misses", 200)
    plain = _Changing()
    compiled = torch.compile(plain)
    agree(compiled, _Changing(), 300)
    assert call_of(compiled).replayed is None and call_of(compiled).until_replay > 500


class _Changing(torch.nn.Module):
    count = 0

    def forward(self, x):
        self.count += 1
        return torch.sin(x) * self.count


def test_reset_and_explain():
    model = blocks()
    compiled = torch.compile(model)
    assert agree(compiled, model) > 0
    text = str(torch.explain(compiled, torch.ones(3, 8)))
    assert "replay: 1 graphs for arguments of 1 kinds" in text
    torch._dynamo.reset()
    assert call_of(compiled).known is None and agree(compiled, model) > 0


def test_reduced_overhead_on_the_cpu():
    model = blocks()
    compiled = torch.compile(model, mode="reduce-overhead")
    for _ in range(8):
        x = torch.randn(3, 8)
        assert torch.equal(model(x), compiled(x))
    assert str(compiled._captured) == "replay: 1 graphs for arguments of 1 kinds"


def test_threads():
    model, wrong = blocks(), []
    compiled = torch.compile(model)

    def run():
        for i in range(150):
            x = torch.randn(3 + i % 3, 8)
            if not torch.equal(model(x), compiled(x)):
                wrong.append(i)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_nested_and_whole():
    inner = torch.compile(blocks())

    def plain(x):
        return inner(x) + inner(x * 2)

    compiled = torch.compile(plain, fullgraph=True)
    assert agree(compiled, plain) > 0


def test_the_environment():
    code = "import mica as torch; c = torch.compile(torch.nn.Sequential(*[torch.nn.ReLU()] * 9)); x = torch.ones(3)\n"
    code += "for _ in range(99): c(x)\nprint(c.forward.known is None)"
    for value, answer in (("0", "True"), ("1", "False")):
        environment = {**os.environ, "MICA_COMPILER_REPLAY": value}
        result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert result.stdout.strip() == answer, result.stderr
