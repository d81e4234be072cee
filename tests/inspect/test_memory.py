"""inspect.memory(): what is held, by line and by kind; the peak, leaks, snapshots and pages."""

import pickle
import xml.etree.ElementTree as ET

import mica
import pytest
from mica import nn

MB = 1 << 20


def line_of(function, offset):
    return f"test_memory.py:{function.__code__.co_firstlineno + offset}"


def own(m):
    """The recording without what was there before it: other tests leave modules behind."""
    m.blocks = [block for block in m.blocks if not block.before]
    m._at_peak = {}
    return m


def test_peak_live_and_lines():
    with mica.inspect.memory() as m:
        a = mica.zeros(MB // 4)
        b = mica.zeros(MB // 2)
        del b
        c = mica.zeros(MB // 4)
    own(m)
    assert m.peak() == 3 * MB and m.live() == 2 * MB
    here = test_peak_live_and_lines
    rows = {row["line"].split("/")[-1]: row for row in m.by_line("peak")}
    assert rows[line_of(here, 2)]["bytes"] == MB and rows[line_of(here, 3)]["bytes"] == 2 * MB
    assert {row["line"].split("/")[-1] for row in m.by_line("end")} == {line_of(here, 2), line_of(here, 5)}
    assert rows[line_of(here, 3)]["code"] == "b = mica.zeros(MB // 2)"
    assert "peak 3.00 MiB" in m.table() and a.numel() == c.numel()
    with pytest.raises(ValueError, match='"peak", "end" or "all"'):
        m.by_line("never")


def test_what_a_training_step_is_made_of():
    with mica.inspect.memory() as m:
        model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64))
        optimizer = mica.optim.AdamW(model.parameters(), lr=1e-3)
        x = mica.randn(4096, 256)
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    own(m)
    parameters = sum(p.nbytes for p in model.parameters())
    kinds = m.at_peak()
    assert kinds["parameters"] == parameters
    assert kinds["optimizer state"] >= 2 * parameters
    assert kinds["gradients"] > 0 or kinds["temporaries"] > 0
    assert kinds["activations"] >= 4096 * 512 * 4
    assert sum(kinds.values()) == m.peak()


def test_inside_operations_that_let_others_run():
    """Large operations give up the interpreter's lock; their lines are known all the same."""
    x = mica.ones(1000, 1000)
    with mica.inspect.memory() as m:
        y = x @ x
        z = y + 1
    lines = {row["line"].split("/")[-1] for row in m.by_line("end")}
    here = test_inside_operations_that_let_others_run
    assert {line_of(here, 4), line_of(here, 5)} <= lines and z.numel() == y.numel()


def test_timeline_and_events():
    with mica.inspect.memory() as m:
        for _ in range(5):
            mica.zeros(1000).add(1).mul(2)
    series = own(m).timeline()
    assert sum(series[-1][1].values()) == m.live() and max(sum(h.values()) for _, h in series) == m.peak()
    assert [t for t, _ in series] == sorted(t for t, _ in series)
    assert len(m.timeline(points=4)) <= 5


def test_leaks():
    kept = []
    with mica.inspect.memory() as m:
        for _ in range(6):
            kept.append(mica.zeros(1000))
            mica.zeros(1000)
    (leak,) = m.leaks()
    assert leak["code"] == "kept.append(mica.zeros(1000))" and (leak["blocks"], leak["bytes"]) == (6, 24000)


def test_page_snapshot_and_plot(tmp_path):
    with mica.inspect.memory() as m:
        kept = mica.zeros(5000)
        mica.zeros(3000).exp()
    m.save(tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    assert page.count("<svg") == 2 and "kept = mica.zeros(5000)" in page and "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    for part in page.split("<svg")[1:]:
        ET.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
    m.save_snapshot(tmp_path / "m.pickle")
    snapshot = pickle.loads((tmp_path / "m.pickle").read_bytes())
    actions = [event["action"] for event in snapshot["device_traces"][0]]
    assert actions.count("alloc") >= 3 and actions.count("free_requested") == actions.count("free_completed") >= 1
    assert snapshot["segments"][0]["blocks"][0]["state"] == "active_allocated"
    assert any("test_memory.py" in f["filename"] for event in snapshot["device_traces"][0] for f in event["frames"])
    assert kept.numel() == 5000 and 0 <= m.fragmentation() <= 1
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install matplotlib"):
            m.plot()


def test_updates_within():
    with mica.inspect.memory() as m:
        kept = mica.zeros(1000)
        assert own(m.update()).live() == 4000
        del kept
        assert own(m.update()).live() == 0
    with pytest.raises(RuntimeError, match="recordings do not nest"), mica.inspect.memory():
        mica._C._memory_start()
    assert not mica._C._memory_recording()


def test_memory_from_before_is_told_apart():
    model = nn.Linear(100, 100)
    with mica.inspect.memory() as m:
        y = model(mica.randn(3, 100))
    before = [b for b in m.blocks if b.before and b.kind == "parameters"]
    assert sum(b.bytes for b in before) >= 100 * 101 * 4 and before[0].line == "(before the recording)"
    assert y.shape == (3, 100)


def test_threads_and_resizing():
    import threading

    made = []
    with mica.inspect.memory() as m:
        worker = threading.Thread(target=lambda: made.append(mica.zeros(2000)))
        worker.start()
        worker.join()
        x = mica.zeros(10)
        x.resize_(5000)
    own(m)
    assert m.live() == 8000 + 20000 and m.peak() >= m.live() and made


def test_out_of_memory_names_the_lines_that_hold_most():
    big = mica.zeros(3, 4 * MB)
    with pytest.raises(mica.OutOfMemoryError, match="you tried to allocate") as caught:
        mica.empty(1 << 50, dtype=mica.uint8)
    message = str(caught.value)
    assert "The lines that hold most:" in message
    assert (
        f"48.00 MiB in 1 tensor, {__file__}" in message
        and line_of(test_out_of_memory_names_the_lines_that_hold_most, 1) in message
    )
    assert "use a smaller shape, batch or dtype" in message and big.numel() == 12 * MB


def test_operations_by_line():
    x = mica.randn(200, 200)
    with mica.inspect.operations() as timed:
        for _ in range(3):
            x @ x
        x.exp()
    rows = timed.by_line()
    assert {row["code"] for row in rows} == {"x @ x", "x.exp()"}
    assert next(row for row in rows if row["code"] == "x @ x")["calls"] == 3
    assert timed.seconds > 0 and {row["operation"] for row in timed.by_operation()} >= {"matmul", "exp"}
    assert "x @ x" in timed.table()
