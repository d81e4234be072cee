"""Timers and the tables that they are shown in."""

import shutil

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


def test_fuzzers_draw_as_torch_does():
    """Sizes, orders and numbers of torch 2.13 from the same seed."""
    parameters = [
        benchmark.FuzzedParameter("k0", 2, 40, "loguniform"),
        benchmark.FuzzedParameter("k1", 3, 9, "uniform"),
        benchmark.FuzzedParameter("s", 1, 2, "uniform"),
        benchmark.FuzzedParameter("r", 0.0, 1.0, "uniform"),
    ]
    tensors = [benchmark.FuzzedTensor("x", ("k0", "k1"), ("s", 1), max_elements=200)]
    drawn = list(benchmark.Fuzzer(parameters, tensors, seed=4).take(3))
    assert [tuple(t["x"].shape) for t, _, _ in drawn] == [(10, 4), (3, 8), (20, 9)]
    assert [t["x"].stride() for t, _, _ in drawn] == [(1, 10), (1, 3), (1, 20)]
    sums = [t["x"].double().sum().item() for t, _, _ in drawn]
    assert sums == pytest.approx([21.2321, 10.9012, 87.2604], abs=1e-3)
    assert drawn[0][2]["r"] == pytest.approx(0.7148159936743647)


def test_fuzzers_of_operations_aliases_and_sparse_tensors():
    from mica.utils.benchmark.op_fuzzers.binary import BinaryOpFuzzer
    from mica.utils.benchmark.op_fuzzers.unary import UnaryOpFuzzer

    for tensors, properties, params in UnaryOpFuzzer(3).take(1):
        assert tensors["x"].numel() >= 4096 and properties["x"]["numel"] == tensors["x"].numel() and params["dim"] <= 3
    for tensors, _, _ in BinaryOpFuzzer(5).take(1):
        (tensors["x"][..., :1] + tensors["y"][..., :1]).sum()  # they broadcast
    alias = benchmark.FuzzedParameter("b", distribution={benchmark.ParameterAlias("a"): 0.5, 1: 0.5})
    fuzzer = benchmark.Fuzzer([benchmark.FuzzedParameter("a", 3, 9, "uniform"), alias], [], seed=0)
    assert {p["b"] == p["a"] for _, _, p in fuzzer.take(20)} == {True, False}
    loops = [
        benchmark.FuzzedParameter(name, distribution={benchmark.ParameterAlias(other): 1.0})
        for name, other in (("a", "b"), ("b", "a"))
    ]
    with pytest.raises(ValueError, match="cycle"):
        next(benchmark.Fuzzer(loops, [], seed=0).take(1))
    with pytest.raises(AssertionError, match="not normalized"):
        benchmark.FuzzedParameter("a", distribution={1: 0.5})
    sparse = [
        benchmark.FuzzedParameter("density", 0.2, 0.3, "uniform"),
        benchmark.FuzzedParameter("coalesced", distribution={True: 1.0}),
        benchmark.FuzzedParameter("sparse_dim", distribution={2: 1.0}),
    ]
    tensor = benchmark.FuzzedSparseTensor("x", (30, 40, 2), sparse_dim="sparse_dim")
    made, facts, _ = next(benchmark.Fuzzer(sparse, [tensor], seed=1).take(1))
    assert made["x"].layout is mica.sparse_coo and facts["x"]["is_coalesced"] and facts["x"]["is_hybrid"]


def counts(**numbers):
    from mica.utils.benchmark.callgrind import FunctionCount, FunctionCounts

    return FunctionCounts(tuple(FunctionCount(n, f"a.c:{name}") for name, n in numbers.items()), inclusive=False)


def test_counts_of_functions():
    both = counts(f=5, g=3) - counts(f=2, h=1)
    assert [tuple(each) for each in both] == [(3, "a.c:g"), (3, "a.c:f"), (-1, "a.c:h")] and both.sum() == 5
    assert (counts(f=5) * 2).sum() == 10 and counts(f=5, g=1).filter(lambda name: "f" in name).sum() == 5
    assert counts(f=5, g=1).transform(lambda name: "all")[0].count == 6
    assert "Total: 6" in repr(counts(f=5, g=1))


@pytest.mark.no_sanitizer("Valgrind runs no program with a sanitizer in it")
@pytest.mark.skipif(not shutil.which("valgrind"), reason="Valgrind counts instructions, and is not installed")
def test_instructions_are_counted():
    """An addition of small tensors takes hundreds to thousands of instructions, and they are found by name."""
    timer = Timer("x + y", setup="x = torch.ones(4)", globals={"y": benchmark.CopyIfCallgrind(mica.ones(4))})
    if (
        mica._C._build_info()["compiled_targets"] == "AVX3"
    ):  # a build for one machine, whose instructions Valgrind lacks
        with pytest.raises(OSError, match="MICA_VECTOR_SETS=all"):
            timer.collect_callgrind(number=1)
        return
    found = timer.collect_callgrind(number=20, collect_baseline=False)
    assert 20 * 300 < found.counts() < 20 * 30000
    assert found.baseline_exclusive_stats.sum() == 0 and f"Instructions: {found.counts():>12}" in repr(found)
    assert any("add" in each.function for each in found.stats(inclusive=True))
    with pytest.raises(ValueError, match="CopyIfCallgrind"):
        Timer("y", globals={"y": mica.ones(4)}).collect_callgrind(number=1)


def test_the_error_where_there_is_no_valgrind(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(OSError, match="valgrind"):
        Timer("pass").collect_callgrind(number=1)
