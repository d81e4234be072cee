"""The planner, the roofline, the einsum explorer, the quiz, and programs of one's own: answers against the engine."""

import itertools
import math

import mica
import pytest

# ---- the planner


def test_plans_fit_and_give_up_the_least_first(ask):
    model = {"parameters": 6738.4e6, "layers": 32, "width": 4096, "heads": 32, "kv_heads": 32}
    answer = ask("plan", **model, training=True, memory=80e9, batch=8, devices=8)
    assert answer["ways"] and all(w["bytes"] <= 80e9 for w in answer["ways"])
    for way in answer["ways"]:
        assert way["bytes"] == pytest.approx(sum(p["bytes"] for p in way["parts"]))
        compile(way["code"], "plan", "exec")
        assert f"batch_size={way['batch']:g}" in way["code"]
        assert ("checkpoint(" in way["code"]) == way["checkpointing"]
        assert ("ZeroRedundancyOptimizer" in way["code"]) == (way["shards"] > 1)
    small = ask("plan", parameters=1e6, training=True, memory=80e9, batch=8, length=16)["ways"][0]
    assert (small["precision"], small["batch"], small["checkpointing"], small["shards"]) == ("float32", 8, False, 1)
    none = ask("plan", **model, training=True, memory=1e9, batch=8)
    assert none["ways"] == [] and none["nearest"] > 1e9
    serving = ask("plan", **model, training=False, memory=24e9, batch=1)
    assert [w["precision"] for w in serving["ways"]] == ["bfloat16", "int8"]
    assert "1 to 1024 devices" in ask("plan", **model, devices=0)["error"]


def test_a_plan_counts_what_the_engine_counts(ask):
    model = mica.nn.Sequential(mica.nn.Linear(512, 2048, bias=False), mica.nn.Linear(2048, 512, bias=False))
    count = sum(p.numel() for p in model.parameters())
    (way, *_) = ask("plan", parameters=count, outputs=2560, widest=2048, batch=4, memory=1e9)["ways"]
    real = mica.inspect.estimate(model, mica.empty(4, 512), optimizer="AdamW")
    parts = {p["name"]: p["bytes"] for p in way["parts"]}
    assert parts["weights"] == real.kinds["parameters"] and parts["gradients"] == real.kinds["gradients"]
    assert parts["optimizer"] == pytest.approx(real.kinds["optimizer state"], rel=1e-3)


# ---- the roofline


def test_operations_under_the_roof(ask):
    answer = ask("roofline", elements=1 << 16)
    rows = {r["name"]: r for r in answer["rows"]}
    product = rows["matrix product"]
    assert product["operations"] == 2 * 256**3 and product["bytes"] == 3 * 256 * 256 * 4
    assert product["intensity"] == pytest.approx(2 * 256 / 12)
    m = answer["machine"]
    for r in rows.values():
        speed = m["cache_bandwidth"] if r["bytes"] <= m["cache_bytes"] else m["bandwidth"]
        times = {
            "memory": r["bytes"] / speed,
            "arithmetic": r["operations"] / m["flops"],
            "overhead": m["overhead"],
        }
        assert r["attainable"] == pytest.approx(max(times.values())) and r["bound"] == max(times, key=times.get)
        assert 0 < r["seconds"] < 1
    assert m["cache_bandwidth"] >= m["bandwidth"]
    # Whatever else a machine is, copying 16 MB takes longer than a call, and a call longer than reading 256 bytes.
    bounds = lambda n: {r["name"]: r["bound"] for r in ask("roofline", elements=n)["rows"]}  # noqa: E731
    assert bounds(64)["sum"] == "overhead" and bounds(1 << 22)["add"] == "memory"
    assert "64 to" in ask("roofline", elements=1)["error"]


# ---- einsum


@pytest.mark.parametrize(
    "equation", ["ik,kj->ij", "bik,bkj->bij", "i,i->", "i,j->ij", "ii->", "ii->i", "ij->ji", "ij", "i,ij,j->", "ij,jk"]
)
def test_einsum_is_the_engine_s(ask, equation):
    answer = ask("einsum", equation=equation)
    operands = [
        mica.arange(1, math.prod(i["shape"]) + 1, dtype=mica.float32).reshape(i["shape"]) for i in answer["inputs"]
    ]
    result = mica.einsum(equation, *operands)
    assert answer["result"]["shape"] == list(result.shape)
    assert answer["result"]["values"] == result.reshape(-1).tolist()
    sizes = {a["letter"]: a["size"] for a in answer["axes"]}
    assert answer["products"] == math.prod(sizes.values())
    assert [sizes[c] for c in answer["result"]["letters"]] == list(result.shape)
    for axis in answer["axes"]:
        assert ("summed away" in axis["what"]) == (not axis["kept"])
        for place in axis["where"]:
            assert answer["inputs"][place["operand"]]["letters"][place["axis"]] == axis["letter"]


def test_einsum_refuses(ask):
    assert "not '!'" in ask("einsum", equation="i!->")["error"]
    assert "1 to 16" in ask("einsum", equation="i->", sizes={"i": 99})["error"]
    assert "one to three" in ask("einsum", equation="a,b,c,d->")["error"]
    assert ask("einsum", equation="ij->ik")["error"]


# ---- the quiz


def test_questions_are_the_same_for_everybody_and_judged_by_the_engine(ask):
    calls, copied = set(), set()
    for number in itertools.chain(range(1000, 1010), range(40)):
        question = ask("quiz", number=number)
        assert question == ask("quiz", number=number) and "truth" not in question
        scope = {"mica": mica}
        for i, line in enumerate(question["before"]):
            scope[f"x{i}"] = eval(line["call"], scope)
        base = scope[f"x{len(question['before']) - 1}"]
        made = eval(question["call"], scope)
        copies = made.untyped_storage().data_ptr() != base.untyped_storage().data_ptr()
        guess = {"shape": list(made.shape), "strides": list(made.stride()), "copies": copies}
        judged = ask("quiz", number=number, guess=guess)
        assert judged["right"] == {"shape": True, "strides": True, "copies": True}, question
        wrong = ask("quiz", number=number, guess={"shape": [9], "strides": [9], "copies": not copies})
        assert not any(wrong["right"].values())
        calls.add(question["call"].split(".")[-1].split("(")[0])
        copied.add(copies)
    assert len(calls) > 6 and copied == {True, False}


# ---- programs

OWN_ENVIRONMENT = "a program of the Lab has an environment of its own, without the sanitizer's library"


@pytest.mark.served("it has no Python")
@pytest.mark.no_sanitizer(OWN_ENVIRONMENT)
def test_a_program_runs_and_shows_its_tensors(ask):
    source = "import torch\nx = torch.arange(6.).reshape(2, 3)\ny = x.t()\nz = y.reshape(-1)\nprint(z.sum().item())\n"
    answer = ask("execute", source=source)
    assert answer["error"] is None and answer["printed"] == "15.0\n"
    rows = {(r["line"], r["operation"]): r for r in answer["tensors"]}
    real = mica.arange(6.0).reshape(2, 3).t()
    view, copy = rows[(3, "t")], rows[(4, "reshape")]
    assert (view["shape"], view["strides"], view["values"]) == ([3, 2], list(real.stride()), real.reshape(-1).tolist())
    assert view["shares"] and not copy["shares"] and view["storage"] == rows[(2, "reshape")]["storage"]
    graph = ask("execute", source="w = torch.ones(2, requires_grad=True)\ny = (w * 2).sum()\n")["tensors"][-1]["graph"]
    assert [n["name"] for n in graph["nodes"]] == ["SumBackward0", "MulBackward0", "torch::autograd::AccumulateGrad"]


@pytest.mark.served("it has no Python")
@pytest.mark.no_sanitizer(OWN_ENVIRONMENT)
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("open('/etc/passwd')", "no files outside"),
        ("open('/tmp/mica-lab-outside', 'w')", "no files outside"),
        ("import os\nos.remove('/tmp/nothing')", "no files outside"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 1))", "may not do this: socket"),
        ("import subprocess\nsubprocess.run(['true'])", "may not do this"),
        ("import os\nos.system('true')", "may not do this: os.system"),
        ("import ctypes\nctypes.CDLL(None)", "may not do this: ctypes"),
        ("x = bytearray(8 << 30)", ""),
        ("1 / 0", "division by zero"),
        ("x = (", "was never closed"),
    ],
)
def test_programs_that_are_refused(ask, source, words):
    answer = ask("execute", source=source)
    assert answer["error"]["message"].find(words) >= 0 and answer["error"]["line"] == source.count("\n") + 1
    assert answer["tensors"] == []


@pytest.mark.served("it has no Python")
@pytest.mark.no_sanitizer(OWN_ENVIRONMENT)
def test_a_program_has_a_folder_that_is_gone_afterwards(ask):
    answer = ask(
        "execute", source="import os\nopen('a', 'w').write('b')\nprint(os.getcwd(), open('a').read(), os.listdir('.'))"
    )
    import os

    folder, *rest = answer["printed"].split()
    assert rest == ["b", "['a']"] and "mica-lab-" in folder and not os.path.exists(folder)


@pytest.mark.served("it has no Python")
@pytest.mark.no_sanitizer(OWN_ENVIRONMENT)
def test_a_program_that_never_ends_is_ended(ask):
    assert "took too long" in ask("execute", source="while True: pass")["error"]
    assert "at most" in ask("execute", source="#" * 70000)["error"]
