"""What the instruments answer, against the engine asked directly."""

import math

import mica
import pytest


def test_engine_lists_operations_and_dtypes(ask):
    facts = ask("engine")
    assert {"view", "matmul", "requires_grad_"} <= {o["name"] for o in facts["operations"]}
    assert {d["name"]: d["bytes"] for d in facts["dtypes"]}["bfloat16"] == 2


# ---- b


@pytest.mark.parametrize("shape", [[32, 3, 224, 224], [], [0, 5], [7]])
def test_calculator(ask, shape):
    answer = ask("calculator", shape=shape)
    assert answer["numel"] == math.prod(shape)
    for row in answer["dtypes"]:
        dtype = getattr(mica, row["dtype"])
        assert row["bytes"] == mica.empty(shape, dtype=dtype, device="meta").nbytes
    assert "negative dimension" in ask("calculator", shape=[-1])["error"]
    assert "overflow" in ask("calculator", shape=[1 << 39, 1 << 39])["error"]


# ---- c


def test_strides_follow_the_engine(ask):
    tape = mica.arange(12)
    for shape, strides, offset in (([3, 4], [4, 1], 0), ([4, 3], [1, 4], 0), ([3], [-4], 8), ([2, 3], [0, 2], 1)):
        answer = ask("strides", shape=shape, strides=strides, offset=offset, elements=12)
        real = tape.as_strided(shape, strides, offset)
        assert answer["places"] == answer["values"] == real.reshape(-1).tolist()
        assert answer["formats"][0]["holds"] == real.is_contiguous() and answer["inside"]
        assert answer["addresses"] == [4 * place for place in answer["places"]]
        assert eval(answer["python"]).tolist() == real.tolist()


@pytest.mark.parametrize(
    ("step", "view"),
    [
        ({"op": "transpose", "dim0": 0, "dim1": 1}, lambda x: x.t()),
        ({"op": "slice", "dim": 1, "start": 1, "step": 2}, lambda x: x[:, 1::2]),
        ({"op": "reverse", "dim": 0}, lambda x: x[::-1]),
        ({"op": "select", "dim": 0, "index": 2}, lambda x: x[2]),
        ({"op": "unsqueeze", "dim": 1}, lambda x: x.unsqueeze(1)),
        ({"op": "expand", "shape": [2, 3, 4]}, lambda x: x.expand(2, 3, 4)),
        ({"op": "view", "shape": [2, 6]}, lambda x: x.view(2, 6)),
    ],
)
def test_operations_of_the_explorer(ask, step, view):
    answer = ask("strides", shape=[3, 4], strides=[4, 1], offset=0, elements=12, apply=step)
    real = view(mica.arange(12).reshape(3, 4))
    assert (answer["shape"], answer["strides"], answer["offset"]) == (
        list(real.shape),
        list(real.stride()),
        real.storage_offset(),
    )


def test_out_of_range_is_shown_and_refused_in_words(ask):
    answer = ask("strides", shape=[3, 4], strides=[4, 1], offset=-2, elements=12)
    assert not answer["inside"] and answer["places"][0] == -2 and answer["refused"]
    answer = ask("strides", shape=[3, 4], strides=[5, 1], offset=0, elements=12)
    assert answer["highest"] == 13 and "out of bounds" in answer["refused"]
    assert (
        "view size is not compatible"
        in ask("strides", shape=[4, 3], strides=[1, 4], offset=0, elements=12, apply={"op": "view", "shape": [12]})[
            "error"
        ]
    )
    assert "at most 256" in ask("strides", shape=[64, 64], strides=[1, 1], offset=0, elements=12)["error"]
    assert "mismatch in length" in ask("strides", shape=[2], strides=[1, 1], offset=0, elements=12)["error"]


# ---- d, h, j

CHAIN = [
    {"op": "arange", "on": [], "args": {"end": 12}},
    {"op": "reshape", "on": [0], "args": {"shape": [3, 4]}},
    {"op": "t", "on": [1], "args": {}},
    {"op": "reshape", "on": [2], "args": {"shape": [-1]}},
]


def test_views_and_writes(ask):
    answer = ask("views", steps=CHAIN, writes=[{"tensor": 1, "element": 5, "value": 99, "after": 4}])
    storages = [step["storage"]["id"] for step in answer["steps"]]
    assert storages == [0, 0, 0, 1] and [step["shares"] for step in answer["steps"]] == [False, True, True, False]
    assert [step["changed"] for step in answer["steps"]] == [[5], [5], [4], []]
    assert "cannot be seen in the new shape" in answer["steps"][3]["copies"][0]["why"]
    assert answer["written"][0]["index"] == [1, 1]
    wrong = [{"tensor": 1, "element": 50, "value": 1, "after": 4}]
    assert "out of bounds" in ask("views", steps=CHAIN, writes=wrong)["error"]


def test_what_is_written_stays_and_later_copies_take_it(ask):
    chain = [*CHAIN, {"op": "clone", "on": [1], "args": {}}]
    steps = ask("views", steps=chain, writes=[{"tensor": 2, "element": 0, "value": 7.5, "after": 4}])["steps"]
    x = mica.arange(12.0)
    a = x.reshape(3, 4)
    b = a.t()
    c = b.reshape(-1)
    b[0, 0] = 7.5
    d = a.clone()
    assert [s["values"] for s in steps] == [t.reshape(-1).tolist() for t in (x, a, b, c, d)]
    assert [s["changed"] for s in steps] == [[0], [0], [0], [], []]


def test_playground_runs_the_chain_and_writes_it_as_code(ask):
    answer = ask("playground", steps=CHAIN)
    x = mica.arange(12.0).reshape(3, 4).t().reshape(-1)
    assert answer["steps"][3]["values"] == x.tolist() and not answer["error"]
    scope = {}
    exec(answer["python"], scope)
    assert scope["x3"].tolist() == x.tolist()
    assert "Tensor x2 = x1.t();" in answer["cpp"]


def test_a_failing_step_says_what_torch_says(ask):
    answer = ask("playground", steps=[*CHAIN[:3], {"op": "view", "on": [2], "args": {"shape": [12]}}])
    assert answer["failed"] == {"step": 3, "call": "x2.view((12,))"} and len(answer["steps"]) == 3
    with pytest.raises(RuntimeError) as caught:
        mica.arange(12.0).reshape(3, 4).t().view(12)
    assert answer["error"] == str(caught.value)


@pytest.mark.parametrize(
    "steps",
    [
        [{"op": "system", "on": [], "args": {}}],
        [{"op": "t", "on": [3], "args": {}}],
        [{"op": "zeros", "on": [], "args": {"shape": [100000, 100000]}}],
        [{"op": "zeros", "on": [], "args": {"shape": "3"}}],
        [{"op": "arange", "on": [], "args": {"end": 1e99}}],
        [{"op": "arange", "on": [], "args": {"end": 3}}, {"op": "expand", "on": [0], "args": {"shape": [1 << 30, 3]}}],
        [{"op": "arange", "on": [], "args": {"end": 3}}, {"op": "repeat", "on": [0], "args": {"repeats": [1 << 30]}}],
        [{"op": "arange", "on": [], "args": {"end": 3}}] * 65,
    ],
)
def test_programs_that_are_refused(ask, steps):
    answer = ask("playground", steps=steps)
    assert answer["error"] and len(answer.get("steps", [])) < len(steps)


def test_every_operation_of_the_playground_works(ask):
    for operation in ask("engine")["operations"]:
        if operation["kind"] == "create":
            steps = [{"op": operation["name"], "on": [], "args": {}}]
        else:
            steps = [{"op": "rand", "on": [], "args": {"shape": [3, 4]}}] * operation["tensors"]
            if operation["name"] in ("t", "matmul", "squeeze", "unsqueeze"):
                steps = [{"op": "rand", "on": [], "args": {"shape": [3, 3]}}] * operation["tensors"]
            if operation["name"] == "channels_last":
                steps = [{"op": "rand", "on": [], "args": {"shape": [1, 2, 3, 4]}}]
            steps = [*steps, {"op": operation["name"], "on": list(range(operation["tensors"])), "args": {}}]
        answer = ask("playground", steps=steps)
        assert not answer["error"], (operation["name"], answer["error"])
        scope = {}
        exec(answer["python"], scope)
        made = scope[f"x{len(steps) - 1}"]
        card = answer["steps"][-1]
        assert (list(made.shape), list(made.stride()), card["dtype"]) == (
            card["shape"],
            card["strides"],
            str(made.dtype).split(".")[-1],
        ), operation["name"]
        values = [] if made.is_meta else made.detach().reshape(-1).tolist()[:256]
        assert card["values"] == pytest.approx(values), operation["name"]


def test_graph(ask):
    steps = [
        {"op": "randn", "on": [], "args": {"shape": [3, 4]}},
        {"op": "requires_grad_", "on": [0], "args": {}},
        {"op": "exp", "on": [1], "args": {}},
        {"op": "mean", "on": [2], "args": {}},
    ]
    answer = ask("graph", steps=steps)
    assert {n["name"] for n in answer["nodes"]} == {"AccumulateGrad", "ExpBackward0", "MeanBackward0"}
    assert len(answer["edges"]) == 2 and answer["saved_bytes"] == 48
    scope = {}
    exec(answer["python"], scope)
    assert answer["steps"][0]["grad"]["values"] == pytest.approx(scope["x0"].grad.reshape(-1).tolist())
    assert ask("graph", steps=steps[:1])["nodes"] == []


# ---- e


def test_broadcasting(ask):
    answer = ask("broadcasting", shapes=[[3, 1], [4]])
    assert answer["result"]["shape"] == [3, 4]
    a, b = mica.arange(3.0).reshape(3, 1), mica.arange(4.0) * 10
    assert answer["result"]["values"] == (a + b).reshape(-1).tolist()
    assert [i["wide_strides"] for i in answer["inputs"]] == [list(t.expand(3, 4).stride()) for t in (a, b)]
    assert [c["sizes"][1]["padded"] for c in answer["columns"]] == [True, False]


def test_broadcasting_that_fails_is_mended(ask):
    answer = ask("broadcasting", shapes=[[3, 4], [3]])
    with pytest.raises(RuntimeError) as caught:
        mica.ones(3, 4) + mica.ones(3)
    assert answer["error"] == str(caught.value)
    assert [c["fits"] for c in answer["columns"]] == [True, False]
    codes = [m["code"] for m in answer["mends"]]
    assert "b.unsqueeze(1)" in codes
    for mend in answer["mends"]:
        shapes = [[3, 4], [3]]
        shapes[mend["tensor"]] = mend["shape"]
        assert ask("broadcasting", shapes=shapes)["result"]["shape"] == mend["result"]
    assert "two or three" in ask("broadcasting", shapes=[[3]])["error"]


# ---- f


def test_precision_casts_are_the_engine_s(ask):
    answer = ask("precision", curve="sine", amplitude=70000, dtypes=["float16", "bfloat16", "float8_e4m3fn"], points=65)
    exact = mica.linspace(0, 1, 65, dtype=mica.float64).mul(2 * math.pi).sin().mul(70000)
    for row in answer["rows"]:
        held = exact.to(getattr(mica, row["dtype"])).double().tolist()
        for shown, real in zip(row["values"], held, strict=True):
            assert shown == (real if math.isfinite(real) else str(real))
    assert answer["rows"][0]["infinite"] > 0 and answer["rows"][1]["infinite"] == 0
    assert "no curve" in ask("precision", curve="square", amplitude=1, dtypes=[])["error"]


def test_formats_of_blocks(ask):
    fours = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    names = ["mxfp8", "mxfp4", "nvfp4"]
    answer = ask("precision", curve="exponential", amplitude=70000, dtypes=names, points=65)
    rows = dict(zip(names, answer["rows"], strict=True))
    assert [(r["dtype"], r["bits"], r["block"]) for r in rows.values()] == [
        ("mxfp8", 8, 32),
        ("mxfp4", 4, 32),
        ("nvfp4", 4, 16),
    ]
    for name, row in rows.items():
        assert row["infinite"] == row["undefined"] == 0
        for start in range(0, 65, row["block"]):
            part = slice(start, start + row["block"])
            (scale,) = set(row["scales"][part])
            largest = max(answer["exact"][part])
            if name == "nvfp4":  # the largest number of a block comes near the largest element
                assert largest / 6 == pytest.approx(scale, rel=2**-4)
            else:
                assert (
                    math.frexp(scale)[0] == 0.5
                    and largest / scale < 2 ** (9 if name == "mxfp8" else 3) <= 2 * largest / scale
                )
            for exact, shown in zip(answer["exact"][part], row["values"][part], strict=True):
                if name == "mxfp8":
                    assert shown == mica.tensor(exact / scale, dtype=mica.float64).to(mica.float8_e4m3fn).item() * scale
                else:
                    assert min(abs(v * scale - min(exact, 6 * scale)) for v in fours) == pytest.approx(
                        abs(shown - min(exact, 6 * scale)), abs=1e-9 * scale
                    )


def test_bits_of_four(ask):
    answer = ask("bits", dtype="mxfp4", value=-2.7)
    assert (answer["bits"], answer["value"], answer["below"], answer["above"]) == ("1101", -3.0, -4.0, -2.0)
    assert ask("bits", dtype="nvfp4", bits="0111")["value"] == 6.0
    assert "4 bits, not" in ask("bits", dtype="nvfp4", bits="1")["error"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_bits(ask, dtype):
    kind = getattr(mica, dtype)
    for value in (1.0, -2.5, 0.1, 0.0):
        answer = ask("bits", dtype=dtype, value=value)
        held = mica.tensor([value], dtype=kind)
        raw = held.view({4: mica.int32, 2: mica.int16, 1: mica.uint8}[held.element_size()]).item()
        assert int(answer["bits"], 2) == raw % (1 << len(answer["bits"])) and answer["value"] == held.double().item()
    flipped = ask("bits", dtype=dtype, bits="1" + ask("bits", dtype=dtype, value=1.0)["bits"][1:])
    assert flipped["value"] == -1.0
    assert flipped["below"] < -1.0 < flipped["above"]
    assert "bits, not" in ask("bits", dtype=dtype, bits="1")["error"]


# ---- a


def test_fit(ask):
    answer = ask("fit", parameters=7e9, memory=24e9, batch=0, length=0)
    by_format = {row["format"]: row for row in answer["rows"]}
    assert by_format["float32"]["bytes"] == 28e9 and not by_format["float32"]["fits"]
    assert (
        by_format["float16"]["bytes"] == 14e9 and by_format["float16"]["fits"] and by_format["int4"]["bytes"] == 3.5e9
    )
    trained = ask("fit", parameters=1e9, training=True, optimizer="AdamW", batch=0, length=0)["rows"][0]
    assert [p["bytes"] for p in trained["parts"]] == [4e9, 4e9, 8e9]
    assert "no optimizer" in ask("fit", parameters=1, optimizer="x")["error"]


def test_weights_files(ask, tmp_path):
    import base64
    import json
    import struct

    header = {"w": {"dtype": "F16", "shape": [10, 20], "data_offsets": [0, 400]}, "__metadata__": {}}
    found = ask("weights_file", kind="safetensors", header=json.dumps(header))
    assert (found["tensors"], found["bytes"], found["parameters"]) == (1, 400, 200)
    mica.save({"a": mica.zeros(100), "b": mica.zeros(3, 5)}, tmp_path / "m.pt")
    tail = (tmp_path / "m.pt").read_bytes()
    wants = ask("weights_file", kind="zip", tail=base64.b64encode(tail).decode())["wants"]
    pickle = base64.b64encode(tail[wants["offset"] : wants["offset"] + wants["size"]]).decode()
    found = ask("weights_file", kind="zip", tail=base64.b64encode(tail).decode(), pickle=pickle)
    assert (found["tensors"], found["bytes"]) == (2, 460)
    assert "no zip directory" in ask("weights_file", kind="zip", tail=base64.b64encode(b"nothing").decode())["error"]
    broken = tail[:-12] + struct.pack("<II", 1 << 30, 0) + tail[-4:]
    assert "error" in ask("weights_file", kind="zip", tail=base64.b64encode(broken).decode())


# ---- g, i


@pytest.mark.served("nothing is measured")
def test_transfer_is_measured(ask):
    answer = ask("transfer", n=64)
    here = answer["rows"][0]
    assert here["kind"] == "measured" and 0 < here["transfer"] < 1 and 0 < here["compute"] < 1
    a100 = next(r for r in answer["rows"] if r["name"] == "A100")
    assert a100["kind"] == "modelled" and a100["bandwidth"] == pytest.approx(12.5e9)
    assert "16 to 4096" in ask("transfer", n=100000)["error"]


def test_sparse_and_quantized(ask):
    answer = ask("sparse", n=64, columns=8)
    assert answer["rows"][0]["dense_bytes"] == 64 * 64 * 4 and all(r["difference"] < 1e-3 for r in answer["rows"])
    last = answer["rows"][-1]
    assert last["coo_bytes"] == last["nonzero"] * 20 < last["dense_bytes"]
    quantized = ask("quantize", bits=8)
    assert quantized["worst"] <= quantized["scale"] / 2 * 1.01 and quantized["levels"] == 256
    assert sum(quantized["histogram"]) == 4096
    assert ask("quantize", bits=4)["rms"] > quantized["rms"]
    assert "2 to 8 bits" in ask("quantize", bits=40)["error"]


def test_run_is_empty_until_something_runs(ask):
    assert ask("run") is None
