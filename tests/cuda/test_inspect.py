"""Looking into memory, copies and errors of a GPU."""

import importlib.util
from pathlib import Path

import mica
import pytest

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]

MB = 1 << 20


def line_of(function, offset):
    return f"test_inspect.py:{function.__code__.co_firstlineno + offset}"


def on_the_gpu(m):
    """The recording of the GPU's blocks alone, without what was there before it."""
    m.blocks = [block for block in m.blocks if not block.before and block.device.startswith("cuda")]
    m._at_peak = {}
    return m


def the_models():
    """The models and the measured step of the tests on the CPU."""
    path = Path(__file__).parents[1] / "inspect" / "test_estimate.py"
    spec = importlib.util.spec_from_file_location("estimated_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_explain():
    x = mica.zeros(3, 4, device="cuda")
    facts = mica.explain(x.t()).to_dict()
    assert facts["device"] == "cuda:0" and facts["address"] == x.data_ptr() and facts["storage"]["bytes"] == 48
    assert "on cuda:0" in str(mica.explain(x))


def test_memory_by_line():
    with mica.inspect.memory() as m:
        a = mica.zeros(MB // 4, device="cuda")
        b = mica.zeros(MB // 2, device="cuda")
        del b
        c = mica.zeros(MB // 4, device="cuda")
    on_the_gpu(m)
    assert m.peak() == 3 * MB and m.live() == 2 * MB
    rows = {row["line"].split("/")[-1]: row["bytes"] for row in m.by_line("peak")}
    assert rows[line_of(test_memory_by_line, 2)] == MB and rows[line_of(test_memory_by_line, 3)] == 2 * MB
    assert a.numel() == c.numel() and 0 <= m.fragmentation("cuda") < 1 and 0 <= m.fragmentation() <= 1


@pytest.mark.parametrize("name", ["mlp", "convnet", "lstm", "gpt"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_estimate_within_five_per_cent(name, training):
    models = the_models()
    make, data = models.MODELS[name]
    foretold = mica.inspect.estimate(make(), data(), optimizer="AdamW" if training else None, device="cuda")
    with mica.backends.cudnn.flags(enabled=False):  # only cuDNN knows what it would keep of recurrent layers
        warm = models.measured(lambda: make().cuda(), lambda: data().cuda(), training)  # libraries make workspaces
        assert warm.blocks
        m = on_the_gpu(models.measured(lambda: make().cuda(), lambda: data().cuda(), training))
    print(f"{name} {'training' if training else 'inference'}: foretold {foretold.peak}, measured {m.peak()}")
    assert foretold.peak == pytest.approx(m.peak(), rel=0.05), (foretold.to_dict(), m.at_peak())


def test_transfers_are_recorded():
    x = mica.randn(256, 256)
    with mica.inspect.copies() as log:
        y = x.cuda()
        y.sum().item()
        y.t().reshape(-1)
    transfers = [copy for copy in log if copy.reason == "transfer"]
    assert transfers[0].bytes == 256 * 256 * 4
    assert (transfers[0].from_device, transfers[0].device) == ("cpu", "cuda:0")
    assert transfers[0].line.endswith(line_of(test_transfers_are_recorded, 3))
    assert "moved 256.00 KiB from cpu to cuda:0" in transfers[0].why
    hidden = [copy for copy in log if copy.hidden and copy.reason == "reshape"]
    assert len(hidden) == 1 and hidden[0].device == "cuda:0"


def test_out_of_memory_names_the_lines_that_hold_most():
    big = mica.zeros(3, 4 * MB, device="cuda")
    with pytest.raises(mica.OutOfMemoryError, match="CUDA out of memory. Tried to allocate") as caught:
        mica.empty(1 << 42, dtype=mica.uint8, device="cuda")
    message = str(caught.value)
    here = line_of(test_out_of_memory_names_the_lines_that_hold_most, 1)
    assert "The lines that hold most:" in message and "48.00 MiB in 1 tensor" in message and here in message
    assert message.count(".py:") <= 5 and "use a smaller shape, batch or dtype" in message
    assert (big + 1).sum().item() == 12 * MB  # the device works on


def test_the_lab_measures_the_gpu():
    pytest.importorskip("mica._lab", reason="the Lab is not part of this build")
    import json
    from urllib.request import Request, urlopen

    server = mica.lab.serve()
    try:
        request = Request(
            f"{server.url}api/transfer",
            data=json.dumps({"n": 2048, "dtype": "float32"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=30) as response:
            gpu = json.load(response)["value"]["rows"][1]
    finally:
        server.stop()
    print({key: gpu[key] for key in ("name", "transfer", "pinned", "compute", "overlapped", "bandwidth", "crossover")})
    assert gpu["kind"] == "measured" and gpu["what"] == "host to device"
    assert 0 < gpu["pinned"] <= gpu["transfer"] * 1.2
    # Six batches: from pinned memory the next one arrives while the last one is computed with.
    longer = max(gpu["pinned"], gpu["compute"])
    assert gpu["overlapped"]["seconds"] == pytest.approx(gpu["pinned"] + gpu["compute"] + 5 * longer)
    assert gpu["one_by_one"]["seconds"] == pytest.approx(6 * (gpu["transfer"] + gpu["compute"]))
