"""inspect.copies(): which copies are hidden, their reasons, their bytes and their lines."""

import sys
from pathlib import Path

import mica
import pytest


def reasons(log):
    return [(copy.operation, copy.reason) for copy in log]


def test_reshape_that_could_not_view():
    x = mica.randn(30, 40)
    with mica.inspect.copies() as log:
        x.reshape(40, 30)
        x.t().reshape(-1)
        x.t().flatten()
    assert reasons(log) == [("reshape", "reshape"), ("flatten", "reshape")]
    assert [copy.bytes for copy in log] == [4800, 4800] and log.bytes == 9600
    assert log[0].line.endswith(f"test_copies.py:{test_reshape_that_could_not_view.__code__.co_firstlineno + 4}")
    assert log[0].code == "x.t().reshape(-1)"
    assert "shape (40, 30) and strides (1, 40) cannot be seen" in log[0].why


def test_casts():
    with mica.inspect.copies() as log:
        mica.ones(10) + mica.ones(10, dtype=mica.float64)
        mica.ones(10, dtype=mica.int64) / 2
    assert [copy.reason for copy in log] == ["cast"] * len(log) and len(log) >= 1
    assert log[0].operation == "add" and (log[0].from_dtype, log[0].dtype) == ("float32", "float64")


def test_what_the_program_spells_out_is_its_own_business():
    x = mica.randn(4, 5)

    def spelled_out():
        x.clone()
        x.t().contiguous()
        x.to(mica.float64)
        x.double()
        mica.zeros(4, 5).copy_(x)
        mica.cat([x, x])
        x.repeat(2, 2)
        y = mica.zeros(4, 5)
        y[1:] = x[1:]

    with mica.inspect.copies() as log:
        spelled_out()
    assert len(log) == 0 and str(log) == "no hidden copies"
    with mica.inspect.copies(asked=True) as log:
        spelled_out()
    assert len(log) >= 5 and not any(copy.hidden for copy in log)


# Operations whose result is the input with some elements changed: each copies, and says so in its entry of the table.
CHANGED_COPIES = {
    "masked_scatter": lambda x, i: x.masked_scatter(x > 0, mica.zeros(36)),
    "index_add": lambda x, i: x.index_add(0, i, mica.ones(2, 6)),
    "index_reduce": lambda x, i: x.index_reduce(0, i, mica.ones(2, 6), "prod"),
    "index_put": lambda x, i: x.index_put((i,), mica.zeros(2, 6)),
    "put": lambda x, i: x.put(i, mica.ones(2)),
    "scatter_add": lambda x, i: x.scatter_add(0, mica.zeros(2, 6, dtype=mica.int64), mica.ones(2, 6)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, mica.zeros(2, 6, dtype=mica.int64), mica.ones(2, 6), "sum"),
    "select_scatter": lambda x, i: x.select_scatter(mica.ones(6), 0, 1),
    "slice_scatter": lambda x, i: x.slice_scatter(mica.ones(2, 6), 0, 0, 2),
    "diagonal_scatter": lambda x, i: x.diagonal_scatter(mica.ones(6)),
    "as_strided_scatter": lambda x, i: x.as_strided_scatter(mica.ones(2, 2), (2, 2), (1, 2)),
    "fill": lambda x, i: mica.fill(x, 1.0),
    "column_stack": lambda x, i: mica.column_stack([x, x.t()]),
}


@pytest.mark.parametrize("name", CHANGED_COPIES)
def test_a_changed_copy_is_asked_for(name):
    x, i = mica.randn(6, 6), mica.tensor([0, 1])
    with mica.inspect.copies() as log:
        CHANGED_COPIES[name](x, i)
    assert len(log) == 0
    with mica.inspect.copies(asked=True) as log:
        CHANGED_COPIES[name](x, i)
    assert name in {copy.operation for copy in log} and {copy.reason for copy in log} == {"asked"}


def test_the_table_knows_its_words():
    sys.path.insert(0, str(Path(__file__).parents[2] / "codegen"))
    import model

    entry = {"schema": "twice(Tensor self) -> Tensor", "copies": "asked"}
    assert model.read_entry("arithmetic", entry).copies == "asked"
    with pytest.raises(model.TableError, match="copies 'sometimes' is not one of"):
        model.read_entry("arithmetic", {**entry, "copies": "sometimes"})


def test_broadcast_written_out():
    with mica.inspect.copies() as log:
        mica.arange(3.0).expand(4, 3).reshape(12)
    assert reasons(log) == [("reshape", "reshape")]
    with mica.inspect.copies() as log:
        mica.randn(4, 3).t().flip(0)
        mica.ones(3).expand(5, 3).sum()
    assert all(copy.reason != "broadcast" for copy in log)


def test_out_that_overlaps():
    x = mica.arange(10.0)
    with mica.inspect.copies() as log:
        mica.cumsum(x, 0, out=x)
    assert ("cumsum", "overlap") in reasons(log)
    assert x.tolist()[-1] == 45


def test_views_copy_nothing():
    x = mica.randn(4, 6)
    with mica.inspect.copies(asked=True) as log:
        x.t()[1:].unsqueeze(0).expand(3, 5, 4).select(0, 1)
        x.view(6, 4)
        x.reshape(2, 12)
        x.contiguous()
        x.to(mica.float32)
    assert len(log) == 0


def test_strict_raises_and_changes_nothing():
    x = mica.randn(3, 4)
    refusal = r"a hidden copy, under inspect.copies\(strict=True\): reshape copied 48 B"
    with pytest.raises(RuntimeError, match=refusal), mica.inspect.copies(strict=True):
        x.clone()
        x.t().reshape(-1)
    with mica.inspect.copies() as log:
        x.t().reshape(-1)
    assert len(log) == 1


def test_totals_by_line():
    x = mica.randn(10, 10)
    with mica.inspect.copies() as log:
        for _ in range(3):
            x.t().reshape(-1)
        x.t().reshape(-1)
    rows = log.by_line()
    assert [(row["copies"], row["bytes"]) for row in rows] == [(3, 1200), (1, 400)]
    assert "reshape" in log.table() and log.to_dict()["bytes"] == 1600


def test_small_ones_can_be_left_out():
    x = mica.randn(3, 4)
    with mica.inspect.copies(least_bytes=1000) as log:
        x.t().reshape(-1)
        mica.randn(30, 40).t().reshape(-1)
    assert [copy.bytes for copy in log] == [4800]


def test_recordings_nest():
    x = mica.randn(3, 4)
    with mica.inspect.copies() as outer:
        x.t().reshape(-1)
        with mica.inspect.copies() as inner:
            x.t().reshape(-1)
    assert (len(outer), len(inner)) == (2, 1)


def test_backward_and_profiler_beside():
    x = mica.randn(3, 4, requires_grad=True)
    with mica.profiler.profile() as p, mica.inspect.copies() as log:
        x.t().reshape(-1).sum().backward()
    assert len(log) >= 1
    names = [e.name for e in p.events()]
    assert "aten::reshape" in names and "SumBackward0" in names
    assert all(e.time_range.end >= e.time_range.start for e in p.events())
    with mica.inspect.copies() as log, mica.profiler.profile():
        x.detach().t().reshape(-1)
    assert len(log) == 1


def test_nothing_stays_on_after_an_error():
    with pytest.raises(RuntimeError, match="cannot be multiplied"), mica.inspect.copies():
        mica.ones(2, 3) @ mica.ones(2, 3)
    assert not mica._C._profiler_recording()
    with pytest.raises(RuntimeError, match="no recording of copies"):
        mica._C._copies_stop()
