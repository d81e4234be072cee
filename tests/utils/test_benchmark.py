"""Timers and the tables that they are shown in."""

import mica
import pytest
from mica.utils import benchmark
from mica.utils.benchmark import Compare, Measurement, TaskSpec, Timer, select_unit, trim_sigfig


def measurement(times, number=10, **task):
    return Measurement(number, [each * number for each in times], TaskSpec(stmt="x + 1", setup="pass", **task))


def test_timers():
    timer = Timer("x + 1", setup="x = torch.ones(3)", label="add", sub_label="small", num_threads=1)
    threads = mica.get_num_threads()
    once = timer.timeit(10)
    assert once.number_per_run == 10 and len(once.raw_times) == 1 and 0 < once.median < 0.01
    often = timer.blocked_autorange(min_run_time=0.01)
    assert sum(often.raw_times) >= 0.01 and often.title == "add: small" and often.as_row_name == "small"
    seen = []
    adaptive = timer.adaptive_autorange(max_run_time=0.05, callback=lambda number, taken: seen.append(taken))
    assert adaptive.raw_times == seen and mica.get_num_threads() == threads
    assert Timer("y * 2", globals={"y": 4}).timeit(2).stmt == "y * 2"
    with pytest.raises(ValueError, match="str"):
        Timer(lambda: 0)
    with pytest.raises(NotImplementedError, match="blocked_autorange"):
        timer.repeat()


def test_statistics():
    m = measurement([1e-6, 2e-6, 3e-6, 4e-6, 5e-6])
    assert m.median == pytest.approx(3e-6) and m.mean == pytest.approx(3e-6) and m.iqr == pytest.approx(2e-6)
    assert m.has_warnings and not measurement([1e-6] * 5).has_warnings
    assert measurement([1e-3] * 5).significant_figures == 4
    assert Measurement.merge([m, m])[0].times == pytest.approx(m.times * 2)
    assert select_unit(3e-5) == ("us", 1e-6) and select_unit(2) == ("s", 1) and trim_sigfig(3.14159, 2) == 3.1
    with benchmark.set_torch_threads(1):
        assert mica.get_num_threads() == 1


def test_printing():
    lines = repr(measurement([1e-6, 2e-6, 3e-6, 4e-6, 5e-6], label="add", description="by hand")).splitlines()
    assert lines[0].startswith("<torch.utils.benchmark.utils.common.Measurement object at 0x")
    assert lines[1:] == [
        "add",
        "by hand",
        "  Median: 3.00 us",
        "  IQR:    2.00 us (2.00 to 4.00)",
        "  5 measurements, 10 runs per measurement, 1 thread",
        "  WARNING: Interquartile range is 66.7% of the median measurement.",
        "           This suggests significant environmental influence.",
    ]
    assert repr(measurement([1.5e-3])).splitlines()[2:] == ["  1.50 ms", "  1 measurement, 10 runs , 1 thread"]


def test_tables():
    results = [
        measurement([time] * 5, label="Sum", sub_label=name, description=column, num_threads=threads)
        for name, column, threads, time in [
            ("n=10", "a", 1, 268.8e-9),
            ("n=10", "b", 1, 258.3e-9),
            ("n=1000", "a", 1, 14049.8e-9),
            ("n=1000", "b", 1, 17889.2e-9),
            ("n=10", "a", 2, 215.2e-9),
        ]
    ]
    table = Compare(results)
    # As torch 2.13 prints these numbers.
    assert str(table).splitlines() == [
        "[-------------- Sum ---------------]",
        "              |     a     |     b   ",
        "1 threads: -------------------------",
        "      n=10    |    268.8  |    258.3",
        "      n=1000  |  14049.8  |  17889.2",
        "2 threads: -------------------------",
        "      n=10    |    215.2  |         ",
        "",
        "Times are in nanoseconds (ns).",
    ]
    table.trim_significant_figures()
    table.colorize()
    table.highlight_warnings()
    assert "\033[31m" in str(table)
    with pytest.raises(ValueError, match="Measurement"):
        table.extend_results([1])
