"""How a GPU's record is laid beside the CPU's: no GPU is needed for this."""

import json

import mica
import pytest
from mica.autograd.profiler_util import DeviceType, events_from
from mica.profiler import ProfilerActivity, profile

MS = 1_000_000  # nanoseconds


def operation(name, parent, start, end, thread=7):
    return (name, "operation", parent, thread, start, end, 0, (), (), (), "", -1)


def kernel(name, launched, start, end, thread=7, kind="kernel"):
    shape = [[4, 1, 1], [256, 1, 1], 32, 1024]
    return [
        kind,
        name,
        start,
        end,
        0,
        7,
        launched // MS,
        launched,
        launched + MS // 2,
        thread,
        4096,
        *shape,
        "cudaLaunchKernel",
    ]


@pytest.fixture
def events():
    rows = [
        operation("outer", -1, 10 * MS, 50 * MS),
        operation("inner", 0, 20 * MS, 30 * MS),
        operation("later", -1, 60 * MS, 70 * MS),
    ]
    device_rows = [
        kernel("in_later", 61 * MS, 100 * MS, 103 * MS),
        kernel("in_inner", 21 * MS, 40 * MS, 45 * MS),
        kernel("in_outer", 35 * MS, 45 * MS, 47 * MS),
        kernel("Memcpy DtoH", 36 * MS, 47 * MS, 48 * MS, kind="gpu_memcpy"),
        kernel("of_another_thread", 22 * MS, 48 * MS, 49 * MS, thread=8),
    ]
    return events_from(rows, device_rows)


def test_kernels_belong_to_what_queued_them(events):
    by_name = {e.name: e for e in events}
    assert [k.name for k in by_name["inner"].kernels] == ["in_inner"]
    assert [k.name for k in by_name["outer"].kernels] == ["in_outer", "Memcpy DtoH"]
    assert by_name["outer"].self_device_time_total == 3000 and by_name["outer"].device_time_total == 8000
    assert by_name["later"].cuda_time_total == 3000 and by_name["of_another_thread"].operation is None
    assert by_name["in_inner"].device_type == DeviceType.CUDA and by_name["in_inner"].time_range.start == 30000
    assert events.self_device_time_total == 12000


def test_averages_and_tables_have_times_of_the_device(events):
    averages = {a.key: a for a in events.key_averages()}
    assert averages["in_inner"].device_time == 5000 and averages["in_inner"].cpu_time_total == 0
    assert averages["outer"].device_time_total == 8000 and averages["outer"].self_cuda_time_total == 3000
    text = events.key_averages().table(sort_by="cuda_time_total")
    assert "Self CUDA" in text and "Self CUDA time total: 12.000ms" in text
    names = [line.split()[0] for line in text.splitlines()[3:8]]
    assert names[0] == "outer" and "in_inner" in names


def test_the_trace_has_kernels_and_arrows(events, tmp_path):
    events.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = next(e for e in trace if e["name"] == "in_inner")
    assert found["cat"] == "kernel" and found["dur"] == 5000 and found["args"]["grid"] == [4, 1, 1]
    assert {e["ph"] for e in trace if e["name"] == "ac2g" and e["id"] == 21} == {"s", "f"}
    assert next(e for e in trace if e.get("cat") == "gpu_memcpy")["args"]["bytes"] == 4096


def test_without_a_gpu_only_the_cpu_is_recorded():
    if mica.cuda.is_available():
        pytest.skip("there is a GPU: tests/cuda records it")
    with (
        pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"),
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p,
    ):
        mica.ones(3) + 1
    assert all(e.device_type == DeviceType.CPU for e in p.events())
    assert mica.profiler.supported_activities() == {ProfilerActivity.CPU}
    with pytest.raises(AssertionError, match="use_device"):
        mica.autograd.profiler.profile(use_device="xpu")
