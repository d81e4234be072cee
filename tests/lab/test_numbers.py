"""Numbers that an instrument once got wrong, against the engine asked directly."""

import base64
import math

import mica
import pytest
from mica import nn


def weights_file(ask, path):
    data = path.read_bytes()
    tail = base64.b64encode(data).decode()
    wants = ask("weights_file", kind="zip", tail=tail)["wants"]
    part = data[wants["offset"] : wants["offset"] + wants["size"]]
    return ask("weights_file", kind="zip", tail=tail, pickle=base64.b64encode(part).decode())


# ---- a


@pytest.mark.parametrize("dtype", [mica.float32, mica.bfloat16, mica.float16, mica.float64, mica.int8])
def test_a_checkpoint_is_counted_in_its_own_dtypes(ask, tmp_path, dtype):
    state = {"w": mica.zeros(2000, 1000).to(dtype), "b": mica.zeros(2000).to(dtype)}
    mica.save(state, tmp_path / "m.pt")
    found = weights_file(ask, tmp_path / "m.pt")
    assert found["parameters"] == 2_002_000 and found["bytes"] == sum(t.nbytes for t in state.values())
    assert list(found["dtypes"]) == [str(dtype).split(".")[-1]]


def test_tied_weights_count_once_and_nested_checkpoints_are_read(ask, tmp_path):
    w = mica.zeros(10, 20)
    mica.save({"model": {"a": w, "b": w}, "steps": [1, 2], "list": [mica.zeros(3)]}, tmp_path / "m.pt")
    found = weights_file(ask, tmp_path / "m.pt")
    assert (found["tensors"], found["parameters"], found["bytes"]) == (2, 203, 812)


def test_a_perceptron_is_no_transformer(ask, tmp_path):
    model = nn.Sequential(nn.Linear(1000, 2000), nn.ReLU(), nn.Linear(2000, 1000))
    mica.save(model.state_dict(), tmp_path / "m.pt")
    found = weights_file(ask, tmp_path / "m.pt")
    assert found["model"] == {"outputs": 3000.0, "widest": 2000.0, "convolutions": 0}
    answer = ask("fit", parameters=found["parameters"], file_bytes=found["bytes"], batch=1, **found["model"])
    rows = {r["format"]: r for r in answer["rows"]}
    held = sum(p.nbytes for p in model.parameters())
    assert rows["as in the file"]["weights"] == rows["float32"]["weights"] == held
    assert rows["float32"]["bytes"] == held + 2 * 2000 * 4  # one activation in, one out
    assert not answer["model"]["transformer"]


def test_a_transformer_in_a_file_is_recognised(ask, tmp_path):
    state = {}
    for i in range(3):
        state[f"model.layers.{i}.self_attn.q_proj.weight"] = mica.zeros(256, 256)
        state[f"model.layers.{i}.self_attn.k_proj.weight"] = mica.zeros(64, 256)
    mica.save(state, tmp_path / "m.pt")
    assert weights_file(ask, tmp_path / "m.pt")["model"] == {"layers": 3, "width": 256, "heads": 4, "kv_heads": 1}


def test_parameters_alone_make_a_model_of_their_size(ask):
    small = ask("fit", parameters=4e6, batch=1, length=2048)
    assert small["model"]["derived"] and small["model"]["layers"] < 8 and small["model"]["width"] < 1024
    assert small["rows"][0]["bytes"] < 0.2e9  # and not Llama's cache
    large = ask("fit", parameters=6738.4e6)["model"]
    assert large["layers"] == pytest.approx(32, abs=2) and large["width"] == pytest.approx(4096, rel=0.1)


def test_the_master_copy_is_a_part_of_its_own(ask):
    rows = {r["format"]: r for r in ask("fit", parameters=1e9, training=True, extras=False)["rows"]}
    names = lambda r: {p["name"]: p["bytes"] for p in r["parts"]}  # noqa: E731
    assert names(rows["float32"]) == {"weights": 4e9, "gradients": 4e9, "optimizer": 8e9}
    assert names(rows["bfloat16"]) == {
        "weights": 2e9,
        "gradients": 2e9,
        "optimizer": 8e9,
        "float32 master copy": 4e9,
    }


def test_flash_attention_leaves_the_matrix_out(ask):
    vit = next(m for m in ask("fit", parameters=1)["models"] if m["name"] == "ViT-B/16")
    assert vit["length"] == 197
    of = lambda fused: ask("fit", **vit, training=True, batch=2, fused_attention=fused)["rows"][1]["parts"][-1]  # noqa: E731
    # Softmax, its dropout and the mask of it: 5 bytes for each head and pair of tokens in 16-bit numbers.
    assert of(False)["bytes"] - of(True)["bytes"] == pytest.approx(12 * 5 * 12 * 2 * 197 * 197)


# ---- b


def test_dtypes_of_a_width_share_a_row(ask):
    answer = ask("calculator", shape=[7, 3])
    assert [w["element"] for w in answer["widths"]] == [16, 8, 4, 2, 1]
    listed = [name for w in answer["widths"] for name in w["dtypes"]]
    assert sorted(listed) == sorted(r["dtype"] for r in answer["dtypes"])
    for width in answer["widths"]:
        for name in width["dtypes"]:
            assert mica.empty(7, 3, dtype=getattr(mica, name), device="meta").nbytes == width["bytes"]


# ---- c


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "bfloat16"])
def test_the_code_of_the_explorer_has_the_chosen_dtype(ask, dtype):
    answer = ask("strides", shape=[2, 3], strides=[3, 1], offset=1, elements=12, dtype=dtype)
    made = eval(answer["python"])
    assert str(made.dtype) == f"mica.{dtype}" or str(made.dtype) == f"torch.{dtype}"
    assert made.element_size() == answer["element_size"]
    assert answer["values"] == made.reshape(-1).tolist() and answer["tape"][1:4] == made[0].tolist()


def test_places_outside_of_the_tape_are_counted_apart(ask):
    answer = ask("strides", shape=[4, 20], strides=[20, 1], offset=0, elements=12)
    assert (answer["reached"], answer["outside"], answer["highest"]) == (12, 68, 79)


def test_layouts_of_the_explorer(ask):
    geometry = {"shape": [2, 3, 4, 5], "strides": [0, 0, 0, 0], "offset": 0, "elements": 120}
    x = mica.empty(2, 3, 4, 5)
    for op, strides in (
        ("row-major", x.stride()),
        ("channels_last", x.contiguous(memory_format=mica.channels_last).stride()),
        ("column-major", (1, 2, 6, 24)),
    ):
        answer = ask("strides", **geometry, apply={"op": op})
        assert tuple(answer["strides"]) == strides, op
    refused = ask("strides", shape=[3], strides=[1], offset=0, elements=3, apply={"op": "channels_last"})["error"]
    assert "required rank 4 tensor to use channels_last format" in refused


# ---- e


def test_the_plainest_mend_comes_first(ask):
    mends = [m["code"] for m in ask("broadcasting", shapes=[[3, 4], [3]])["mends"]]
    assert mends[0] == "b.unsqueeze(1)"
    answer = ask("broadcasting", shapes=[[3, 4], [3]])
    assert [i["shape"] for i in answer["inputs"]] == [[3, 4], [3]]  # a failure is drawn, too


# ---- f


def held_in(values, dtype):
    return mica.tensor(values, dtype=mica.float64).to(dtype).double().tolist()


def test_levels_are_distinct_values(ask):
    answer = ask("precision", curve="sine", amplitude=100, dtypes=["float32", "bfloat16", "int8"])
    for row in answer["rows"]:
        assert row["levels"] == len({v for v in row["values"] if isinstance(v, float | int)})
    held = held_in(answer["exact"], mica.float32)
    assert answer["rows"][0]["levels"] == len(set(held)) < 257


def test_what_is_too_large_is_infinite_or_held(ask):
    names = ["float16", "float8_e4m3fn", "float8_e5m2"]
    answer = ask("precision", curve="sine", amplitude=70000, dtypes=names)
    rows = dict(zip(names, answer["rows"], strict=True))
    for name, row in rows.items():
        held = held_in(answer["exact"], getattr(mica, name))
        largest = mica.finfo(getattr(mica, name)).max
        assert row["infinite"] == sum(math.isinf(v) for v in held)
        assert row["undefined"] == sum(math.isnan(v) for v in held)
        assert row["largest"] == largest
        over = [h for h, e in zip(held, answer["exact"], strict=True) if abs(e) > largest and math.isfinite(h)]
        assert row["saturated"] == len(over)
    assert rows["float8_e4m3fn"]["saturated"] > 200 and rows["float8_e4m3fn"]["infinite"] == 0


def test_int8_is_scaled_or_truncated(ask):
    scaled = ask("precision", curve="ramp", amplitude=100, dtypes=["int8"])["rows"][0]
    assert scaled["scale"] == pytest.approx(100 / 127)
    cut = ask("precision", curve="ramp", amplitude=100, dtypes=["int8"], truncate=True)
    assert cut["rows"][0]["scale"] is None
    assert cut["rows"][0]["values"] == held_in(cut["exact"], mica.int8)


def test_a_lens_is_a_part_of_the_curve(ask):
    lens = ask("precision", curve="sine", amplitude=70000, dtypes=["bfloat16"], points=513, **{"from": 0.1, "to": 0.12})
    exact = mica.linspace(0.1, 0.12, 513, dtype=mica.float64).mul(2 * math.pi).sin().mul(70000).tolist()
    assert lens["exact"] == pytest.approx(exact)
    assert 5 < lens["rows"][0]["levels"] == len(set(held_in(exact, mica.bfloat16))) < 60
    assert "between 0 and 1" in ask("precision", curve="sine", amplitude=1, dtypes=[], **{"from": 1, "to": 0})["error"]


def test_neighbours_end_where_the_format_ends(ask):
    def beside(dtype, value):
        answer = ask("bits", dtype=dtype, value=value)
        return answer["below"], answer["above"]

    assert beside("int8", 127) == (126.0, None) and beside("int8", -128) == (None, -127.0)
    tiny = mica.finfo(mica.float16).smallest_normal * 2**-10
    assert beside("float16", 0.0) == (-tiny, tiny)
    assert beside("float16", 65504.0) == (65472.0, "inf") and beside("float16", "inf") == (65504.0, None)
    assert beside("float8_e4m3fn", 448.0) == (416.0, None)
    for dtype in (mica.float32, mica.float16, mica.bfloat16):
        for value in (1.0, -3.0, 0.1, -0.25):
            x = mica.tensor(value, dtype=dtype)
            far = mica.tensor(math.inf, dtype=dtype)
            expected = (mica.nextafter(x, -far).double().item(), mica.nextafter(x, far).double().item())
            assert beside(str(dtype).split(".")[-1], value) == expected


# ---- g


def test_transfer_counts_its_bytes_once(ask):
    answer = ask("transfer", n=1024, dtype="float16", measure=False)
    a100 = next(r for r in answer["rows"] if r["name"] == "A100")
    assert a100["bandwidth"] == pytest.approx(answer["bytes"] / a100["transfer"]) == pytest.approx(12.5e9)
    assert a100["pinned_bandwidth"] == pytest.approx(answer["bytes"] / a100["pinned"]) == pytest.approx(25e9)
    document = ask("transfer", n=4096, dtype="float16", measure=False)
    a100 = next(r for r in document["rows"] if r["name"] == "A100")
    assert a100["pinned"] == pytest.approx(1.34e-3, rel=0.01) and a100["compute"] == pytest.approx(0.44e-3, rel=0.01)
    assert any("NVLink" in r["what"] for r in document["rows"])


@pytest.mark.served("nothing is measured")
def test_a_measured_transfer_counts_its_bytes_once(ask):
    measured = ask("transfer", n=256)["rows"][0]
    assert measured["bandwidth"] == pytest.approx(256 * 256 * 4 / measured["transfer"]) and measured["samples"] > 2


def test_pinned_batches_overlap_and_pageable_ones_wait(ask):
    row = next(r for r in ask("transfer", n=4096, dtype="float16", measure=False)["rows"] if r["name"] == "A100")
    waiting = row["one_by_one"]
    assert waiting["seconds"] == pytest.approx(6 * (row["transfer"] + row["compute"]))
    # The transfer is the longer one: the last product alone is not hidden behind it.
    assert row["overlapped"]["seconds"] == pytest.approx(6 * row["pinned"] + row["compute"])
    for plan in (waiting, row["overlapped"]):
        for before, after in zip(plan["batches"], plan["batches"][1:], strict=False):
            assert after["transfer"][0] >= before["transfer"][1] and after["compute"][0] >= before["compute"][1]
        for b in plan["batches"]:
            assert b["compute"][0] >= b["transfer"][1]


def test_an_addition_never_pays_for_its_transfer(ask):
    for n in (64, 4096):
        for row in ask("transfer", n=n, operation="add", measure=False)["rows"]:
            assert row["crossover"] is None and row["ratio"] > 1, row["name"]
    assert "matmul or add" in ask("transfer", n=64, operation="svd")["error"]


# ---- h


def test_steps_have_an_address_and_a_device(ask):
    steps = [
        {"op": "arange", "on": [], "args": {"end": 12}},
        {"op": "reshape", "on": [0], "args": {"shape": [3, 4]}},
        {"op": "slice", "on": [1], "args": {"dim": 1, "start": 1, "stop": 4, "step": 2}},
        {"op": "rows", "on": [1], "args": {"index": [0, 2]}},
        {"op": "mask", "on": [1], "args": {"above": 5}},
        {"op": "to device", "on": [1], "args": {"device": "meta"}},
    ]
    answer = ask("playground", steps=steps)
    x = mica.arange(12.0).reshape(3, 4)
    assert [s["values"] for s in answer["steps"][2:5]] == [
        t.reshape(-1).tolist() for t in (x[:, 1:4:2], x[[0, 2]], x[x > 5])
    ]
    assert [s["shares"] for s in answer["steps"]] == [False, True, True, False, False, False]
    address = [int(s["data_ptr"], 16) for s in answer["steps"]]
    assert address[1] == address[0] and address[2] == address[0] + 4 and address[5] == 0
    assert [s["device"] for s in answer["steps"]] == ["cpu"] * 5 + ["meta"]
    assert answer["memory"] == 48 + 32 + 24 and answer["storages"] == 3
    scope = {}
    exec(answer["python"], scope)
    assert scope["x3"].tolist() == x[[0, 2]].tolist() and scope["x5"].is_meta
    assert "x1[:, 1:4:2]" in answer["python"] and "x1[[0,2]]" in answer["python"]


# ---- i


@pytest.mark.parametrize("n", [32, 256, 1024])
def test_crossovers_are_exact(ask, n):
    layouts = {x["name"]: x for x in ask("sparse", n=n, layouts=True)["layouts"]}

    def smaller(name, zeros):
        dense = mica.zeros(n, n)
        dense.view(-1)[zeros:] = 1
        if name == "COO":
            made = dense.to_sparse()
            return made._indices().nbytes + made._values().nbytes < dense.nbytes
        made = dense.to_sparse_csr()
        index = 4 if "int32" in name else 8
        return (made.crow_indices().numel() + made.col_indices().numel()) * index + made.values().nbytes < dense.nbytes

    for name, layout in layouts.items():
        edge = layout["crossover"] * n * n
        assert not smaller(name, math.floor(edge - 1)) and smaller(name, math.ceil(edge + 1)), name
    assert layouts["COO"]["crossover"] == pytest.approx(0.8)


def test_every_number_lands_on_a_level(ask):
    for bits in (3, 8):
        answer = ask("quantize", bits=bits)
        hits = [h for h in answer["hits"] if h[1]]
        assert sum(n for _, n in hits) == 4096 and len(hits) == answer["levels_used"] and len(answer["hits"]) == 2**bits
