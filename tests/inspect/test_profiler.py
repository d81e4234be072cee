"""torch.profiler: events, averages, tables, schedules, traces."""

import gzip
import json

import mica
import pytest
from mica.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)


def work():
    x = mica.randn(8, 8, requires_grad=True)
    (x @ x).relu().sum().backward()


def test_operations_nodes_and_ranges():
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p, record_function("mine"):
        work()
    by_name = {e.name: e for e in p.events()}
    assert by_name["aten::matmul"].cpu_parent.name == "mine"
    assert by_name["aten::matmul"].input_shapes == [[8, 8], [8, 8]]
    assert by_name["aten::mm"].input_dtypes[0] == mica.float32
    node = by_name["ReluBackward0"]
    assert node.kind == "node"
    assert node.sequence_nr == by_name["aten::relu"].sequence_nr, "a backward is linked with its forward"


def test_times_add_up():
    with profile() as p:
        work()
    for event in p.events():
        assert event.cpu_time_total >= 0
        inner = sum(child.cpu_time_total for child in event.cpu_children)
        assert event.self_cpu_time_total == pytest.approx(event.cpu_time_total - inner)
        for child in event.cpu_children:
            assert event.time_range.start <= child.time_range.start <= child.time_range.end <= event.time_range.end
    averages = p.key_averages()
    total = averages.total_average()
    assert sum(e.count for e in averages) == len(p.events()) == total.count
    assert averages.self_cpu_time_total == pytest.approx(total.self_cpu_time_total)


def test_memory():
    with profile(profile_memory=True) as p:
        kept = mica.ones(1000)
        mica.ones(500)
    ones = [e for e in p.events() if e.name == "aten::ones"]
    assert [e.cpu_memory_usage >= size for e, size in zip(ones, (4000, 2000), strict=True)] == [True, True]
    assert "CPU Mem" in p.key_averages().table()
    assert kept.numel() == 1000


def test_stacks():
    with profile(with_stack=True) as p:
        work()
    event = next(e for e in p.events() if e.name == "aten::relu")
    assert any("test_profiler.py" in frame and frame.endswith(": work") for frame in event.stack)
    table = p.key_averages(group_by_stack_n=2).table()
    assert "Source Location" in table
    assert "test_profiler.py" in table


def test_tables():
    with profile(record_shapes=True, with_flops=True) as p:
        work()
        mica.randn(3, 3) @ mica.randn(3, 3)
    table = p.key_averages().table(sort_by="self_cpu_time_total", row_limit=3)
    assert len(table.splitlines()) == 3 + 3 + 2
    assert "Self CPU time total" in table
    shaped = p.key_averages(group_by_input_shape=True)
    assert {str(e.input_shapes) for e in shaped if e.key == "aten::mm"} >= {"[[8, 8], [8, 8]]", "[[3, 3], [3, 3]]"}
    assert sum(e.flops for e in shaped if e.key == "aten::mm" and e.input_shapes == [[3, 3], [3, 3]]) == 54
    with pytest.raises(AttributeError, match="cannot sort by 'nothing'"):
        p.key_averages().table(sort_by="nothing")


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_chrome_trace(tmp_path, name):
    with profile(record_shapes=True) as p, record_function("mine"):
        work()
    path = tmp_path / name
    p.export_chrome_trace(str(path))
    data = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    events = json.loads(data)["traceEvents"]
    complete = {e["name"]: e for e in events if e["ph"] == "X"}
    assert complete["mine"]["cat"] == "user_annotation"
    assert complete["aten::mm"]["args"]["Input Dims"] == [[8, 8], [8, 8]]
    arrows = [e for e in events if e["ph"] in "sf"]
    assert arrows
    assert len([e for e in arrows if e["ph"] == "s"]) == len([e for e in arrows if e["ph"] == "f"])


def test_stack_export(tmp_path):
    with profile(with_stack=True) as p:
        work()
    p.export_stacks(str(tmp_path / "stacks.txt"))
    line = (tmp_path / "stacks.txt").read_text().splitlines()[0]
    frames, count = line.rsplit(" ", 1)
    assert int(count) >= 0
    assert ";" in frames


def test_schedule():
    plan = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    none, warm, record, save = ProfilerAction
    assert [plan(i) for i in range(10)] == [none, none, warm, record, save, none, warm, record, save, none]
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(wait=1, warmup=1, active=0)


def test_only_scheduled_steps_are_recorded(tmp_path):
    seen = []

    def ready(p):
        seen.append(sorted({e.name for e in p.events() if e.name.startswith("ProfilerStep")}))

    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready) as p:
        for _ in range(9):
            work()
            p.step()
    assert seen == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]
    handler = tensorboard_trace_handler(str(tmp_path), worker_name="w")
    handler(p)
    assert [f.name.startswith("w.") for f in tmp_path.iterdir()] == [True]


def test_an_exception_ends_the_recording():
    with pytest.raises(RuntimeError, match="cannot be multiplied"), profile() as p:
        mica.ones(2, 3) @ mica.ones(2, 3)
    assert not mica._C._profiler_recording()
    assert all(e.time_range.end >= e.time_range.start for e in p.events())
    with pytest.raises(RuntimeError, match="already enabled"), profile(), profile():
        pass
    mica._C._profiler_stop()


def test_nothing_is_recorded_outside():
    with record_function("nobody listens"):
        work()
    p = profile()
    with pytest.raises(AssertionError, match="nothing has been recorded"):
        p.events()


def test_autograd_profiler():
    with mica.autograd.profiler.profile() as p:
        work()
    assert "aten::mm" in str(p)
    assert p.self_cpu_time_total > 0


def test_what_a_program_writes_along(tmp_path):
    with profile(custom_trace_id_callback=lambda: "run 7") as p:
        work()
    p.add_metadata("batch", "32")
    p.add_metadata_json("config", '{"depth": 3}')
    assert p.get_trace_id() == "run 7"
    path = tmp_path / "trace.json"
    p.export_chrome_trace(str(path))
    written = json.loads(path.read_text())
    assert written["batch"] == "32" and written["config"] == {"depth": 3} and written["trace_id"] == "run 7"
    assert written["traceEvents"]


@pytest.mark.parametrize("accumulates", [False, True])
def test_events_of_cycles(accumulates):
    with profile(schedule=schedule(wait=1, warmup=0, active=1), acc_events=accumulates) as p:
        for _ in range(4):
            mica.ones(2) + 1
            p.step()
    assert sum(event.name == "aten::add" for event in p.events()) == (2 if accumulates else 1)


def test_steps_of_several_who_tell():
    from mica.autograd.profiler import EnforceUnique, KinetoStepTracker

    start = KinetoStepTracker.current_step()
    KinetoStepTracker.init_step_count("a")
    assert [KinetoStepTracker.increment_step(name) for name in ("a", "b", "a")] == [start + 1, start + 2, start + 2]
    assert KinetoStepTracker.erase_step_count("a") and not KinetoStepTracker.erase_step_count("a")
    KinetoStepTracker.erase_step_count("b")
    keys = EnforceUnique()
    keys.see(1, 2)
    with pytest.raises(RuntimeError, match="duplicate key"):
        keys.see(1, 2)


def test_ranges_for_nvidias_profilers(monkeypatch):
    from mica.autograd.profiler import emit_itt, emit_nvtx
    from mica.cuda import nvtx

    monkeypatch.setattr(nvtx, "_load", lambda: False)
    with pytest.raises(RuntimeError, match="NVTX functions not installed"), emit_nvtx():
        pass
    with emit_nvtx(enabled=False):
        mica.ones(2)
    pushed, open_ranges = [], []
    monkeypatch.setattr(nvtx, "_load", lambda: True)
    monkeypatch.setattr(nvtx, "range_push", lambda name: (pushed.append(name), open_ranges.append(name)))
    monkeypatch.setattr(nvtx, "range_pop", lambda: open_ranges.pop())
    x = mica.ones(2, 3)
    with emit_nvtx(record_shapes=True):
        x.mul(x)
        with pytest.raises(RuntimeError):
            x.matmul(x)
    assert "aten.mul.Tensor, sizes = [[2, 3], [2, 3]]" in pushed and not open_ranges
    x.mul(x)
    assert sum("mul.Tensor" in each for each in pushed) == 1
    with pytest.raises(RuntimeError, match="ITT functions not installed"), emit_itt():
        pass


def test_ranges_for_intels_profilers_are_refused():
    from mica.profiler import itt

    assert not itt.is_available() and mica.profiler.itt is itt
    with pytest.raises(RuntimeError, match="ITT functions not installed"):
        itt.range_push("a")


def test_ranges_by_handles():
    operators = mica.ops.profiler
    with mica.autograd.profiler.profile() as profile:
        handle = operators._record_function_enter("named", None)
        mica.ones(3) * 2
        operators._record_function_exit(handle)
    found = {event.name: event.cpu_parent and event.cpu_parent.name for event in profile.function_events}
    assert found["named"] is None and found["aten::mul"] == "named"
    with pytest.raises(RuntimeError, match="handle of no range that is open"):
        operators._record_function_exit(handle)
