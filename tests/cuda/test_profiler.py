"""What a profile shows of the GPU."""

import json

import mica
import pytest
from mica.profiler import ProfilerActivity, profile, record_function

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not mica.cuda.is_available(), reason="there is no CUDA backend or no GPU"),
]


@pytest.fixture(scope="module")
def recorded():
    if ProfilerActivity.CUDA not in mica.profiler.supported_activities():
        pytest.skip("CUPTI is not installed")
    x = mica.rand(512, 512, device="cuda", requires_grad=True)
    (x @ x).relu().sum().backward()  # libraries start before the recording
    mica.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        with record_function("mine"):
            y = (x @ x).relu()
        y.sum().backward()
        with mica.cuda.nvtx.range("marked"):
            z = y.detach().cpu()
        mica.zeros(1000, device="cuda")
    assert z.shape == (512, 512)
    return p


def test_kernels_have_names_times_and_operations(recorded):
    kernels = [e for e in recorded.events() if e.device_type == 1 and e.kind == "kernel"]
    assert kernels and all(0 < e.device_time_total < 1e5 for e in kernels)
    relu = next(e for e in recorded.events() if e.name == "aten::relu")
    assert len(relu.kernels) == 1 and "mica::cuda" in relu.kernels[0].name
    product = next(e for e in recorded.events() if e.name == "aten::matmul")
    assert product.device_time_total > 0 and product.self_cpu_time_total >= 0
    mine = next(e for e in recorded.events() if e.name == "mine")
    assert mine.device_time_total >= product.device_time_total + relu.device_time_total
    node = next(e for e in recorded.events() if e.name == "ReluBackward0")
    assert node.device_time_total > 0
    # A kernel starts after it was queued: both records use one clock.
    assert all(e.time_range.start > e.launch_range.start for e in kernels)


def test_copies_are_recorded(recorded):
    copy = next(e for e in recorded.events() if e.device_type == 1 and e.name.startswith("Memcpy DtoH"))
    assert copy.nbytes == 512 * 512 * 4 and copy.operation is not None
    assert any(e.name == "marked" for e in recorded.events())


def test_averages_tables_and_traces(recorded, tmp_path):
    averages = {a.key: a for a in recorded.key_averages()}
    assert averages["aten::relu"].device_time > 0 and averages["aten::relu"].self_device_time_total > 0
    text = recorded.key_averages().table(sort_by="cuda_time_total", row_limit=10)
    assert "Self CUDA time total" in text
    recorded.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"kernel", "gpu_memcpy", "cuda_runtime", "cpu_op"} <= {e.get("cat") for e in trace}


def test_recording_twice_starts_anew(recorded):
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CUDA]) as p:
            mica.ones(10, device="cuda").exp()
        kernels = [e for e in p.events() if e.device_type == 1]
        assert 1 <= len(kernels) <= 3
