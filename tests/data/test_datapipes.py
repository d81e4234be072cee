"""Pipes: what they give, in torch's orders from torch's seeds (recorded from torch 2.13), alone and in a DataLoader."""

import pickle
import subprocess
import sys

import mica as torch
import pytest
from mica.utils.data import (
    DataLoader,
    IterDataPipe,
    argument_validation,
    functional_datapipe,
    guaranteed_datapipes_determinism,
    non_deterministic,
    runtime_validation,
    runtime_validation_disabled,
)
from mica.utils.data.datapipes.iter import FileLister, IterableWrapper
from mica.utils.data.datapipes.map import SequenceWrapper
from mica.utils.data.datapipes.utils.common import StreamWrapper
from mica.utils.data.datapipes.utils.snapshot import _simple_graph_snapshot_restoration
from mica.utils.data.graph import traverse_dps
from mica.utils.data.graph_settings import apply_sharding, get_all_graph_pipes


def parity(x):
    return x % 2


def increment(x):
    return x + 1


def is_even(x):
    return x % 2 == 0


def add(a, b):
    return a + b


def numbers(n=10):
    return IterableWrapper(range(n))


@pytest.mark.parametrize(
    ("pipe", "expected"),
    [
        (lambda: numbers().map(increment).filter(is_even).batch(2), [[2, 4], [6, 8], [10]]),
        (lambda: numbers(7).batch(3).batch(2).unbatch(2), list(range(7))),
        (lambda: numbers(7).batch(3).batch(2).unbatch(-1), list(range(7))),
        (lambda: numbers().shuffle().set_shuffle(False), list(range(10))),
        (lambda: numbers(3).mux(IterableWrapper(range(10, 15))), [0, 10, 1, 11, 2, 12]),
        (lambda: numbers(2).zip(IterableWrapper("abc")), [(0, "a"), (1, "b")]),
        (lambda: numbers(2).concat(IterableWrapper("ab")), [0, 1, "a", "b"]),
        (lambda: numbers(6).groupby(parity, keep_key=True), [(0, [0, 2, 4]), (1, [1, 3, 5])]),
        (lambda: numbers(6).groupby(parity, group_size=2, buffer_size=4), [[0, 2], [1, 3], [4], [5]]),
        (lambda: IterableWrapper([(1, 2, 3), (4, 5, 6)]).map(add, input_col=[0, 2]), [(4, 2), (10, 5)]),
        (lambda: IterableWrapper([(1, 2)]).map(increment, input_col=1, output_col=-1), [(1, 2, 3)]),
        (lambda: IterableWrapper([{"a": 1}]).map(increment, input_col="a", output_col="b"), [{"a": 1, "b": 2}]),
        (lambda: SequenceWrapper(range(4)).map(increment).batch(3), [[1, 2, 3], [4]]),
        (lambda: SequenceWrapper("ab").concat(SequenceWrapper("c")).zip(SequenceWrapper(range(3))), None),
    ],
)
def test_what_pipes_give(pipe, expected):
    given = list(pipe())
    assert given == (expected if expected is not None else [("a", 0), ("b", 1), ("c", 2)])


def test_orders_are_torchs():
    torch.manual_seed(3)
    first = list(numbers().shuffle(buffer_size=4))
    assert sorted(first) == list(range(10))
    assert list(numbers().shuffle().set_seed(7)) == [5, 2, 8, 7, 0, 1, 3, 6, 4, 9]
    torch.manual_seed(1)
    assert list(SequenceWrapper(range(10)).shuffle()) == [2, 1, 3, 0, 4, 9, 6, 5, 8, 7]


def test_lengths():
    assert len(numbers().map(increment).batch(3)) == 4
    assert len(numbers().batch(3, drop_last=True)) == 3
    assert len(numbers(3).mux(numbers(5))) == 6
    with pytest.raises(TypeError, match="instance doesn't have valid length"):
        len(numbers().map(increment).zip(numbers().filter(is_even)))


def test_fork_and_demux():
    left, right = numbers(6).fork(2)
    assert list(zip(left, right, strict=True)) == [(i, i) for i in range(6)]
    assert (list(left), list(right)) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
    left, _ = numbers(6).fork(2, buffer_size=2)
    with pytest.raises(BufferError, match="buffer size 2 is insufficient"):
        list(left)
    even, odd = numbers(9).demux(2, parity)
    assert (list(even), list(odd)) == ([0, 2, 4, 6, 8], [1, 3, 5, 7])
    even, _ = numbers(9).demux(2, increment)
    with pytest.raises(ValueError, match="should be between 0 and 1"):
        list(even)


def test_one_iterator_at_a_time():
    pipe = numbers()
    first = iter(pipe)
    next(first)
    second = iter(pipe)
    assert next(second) == 0
    with pytest.raises(RuntimeError, match="another iterator has been created from the same IterDataPipe"):
        next(first)


def test_errors_say_which_pipe():
    def refuse(x):
        raise ValueError("no")

    with pytest.warns(UserWarning, match="Local function"):
        pipe = numbers().map(refuse)
    with pytest.raises(ValueError, match="thrown by __iter__ of MapperIterDataPipe"):
        list(pipe)
    with pytest.raises(ValueError, match="takes 2 positional parameters, but 1 are required"):
        numbers().map(add)
    with pytest.raises(ValueError, match="Boolean output is required"):
        list(numbers().filter(increment))
    with pytest.raises(AttributeError, match="has no attribute 'nothing"):
        _ = numbers().nothing


def test_sharding():
    pipe = numbers().map(increment).sharding_filter()
    assert list(apply_sharding(pipe, 3, 1)) == [2, 5, 8]
    assert len(pipe) == 3
    with pytest.raises(RuntimeError, match="Sharding twice"):
        apply_sharding(pipe.sharding_filter(), 3, 1)
    with pytest.raises(ValueError, match="should be smaller"):
        apply_sharding(pipe, 3, 3)


def test_the_graph():
    pipe = numbers().map(increment).shuffle().batch(2)
    names = [type(each).__name__ for each in get_all_graph_pipes(traverse_dps(pipe))]
    kinds = ("Batcher", "Shuffler", "Mapper", "IterableWrapper")
    assert names == [f"{kind}IterDataPipe" for kind in kinds]


def test_pickles_and_snapshots():
    pipe = numbers().map(increment).shuffle().set_seed(2).batch(3)
    assert list(pickle.loads(pickle.dumps(pipe))) == list(pipe)
    pipe = numbers().shuffle()
    _simple_graph_snapshot_restoration(pipe, 4, torch.Generator().manual_seed(4))
    assert list(pipe) == [5, 3, 4, 8, 9, 6]
    assert len(list(pipe)) == 10


def test_files(tmp_path):
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "a.bin").write_bytes(b"0")
    pipe = FileLister(str(tmp_path), "*.txt").open_files("b").read_from_stream()
    assert [content for _, content in pipe] == [b"one", b"two"]
    with pytest.warns(FutureWarning, match="routed_decode"):
        decoded = IterableWrapper([("a.txt", b"hi"), ("b.cls", b"3"), ("c.json", b'{"x": 1}')]).routed_decode()
    assert list(decoded) == [("a.txt", "hi"), ("b.cls", 3), ("c.json", {"x": 1})]
    stream = StreamWrapper(open(tmp_path / "a.txt"))  # noqa: SIM115 - the wrapper closes it
    file = stream.file_obj
    del stream
    assert file.closed


def test_names_that_are_no_longer_to_be_used():
    from mica.utils.data.datapipes.utils import common

    IterDataPipe.register_function("old_name", lambda pipe: pipe)
    common._iter_deprecated_functional_names["old_name"] = {
        "old_class_name": "Old",
        "old_functional_name": "old_name",
        "deprecation_version": "1",
        "removal_version": "2",
        "new_functional_name": "new_name",
    }
    try:
        with pytest.warns(FutureWarning, match=r"`.old_name\(\)` are deprecated since 1(.|\n)*use `.new_name"):
            numbers().old_name()
    finally:
        del IterDataPipe.functions["old_name"], common._iter_deprecated_functional_names["old_name"]


def test_decorators():
    @functional_datapipe("twice_each")
    class Twice(IterDataPipe[int]):
        @argument_validation
        def __init__(self, source: IterDataPipe):
            self.source = source

        @runtime_validation
        def __iter__(self):
            for each in self.source:
                yield 2 * each

    try:
        assert list(numbers(3).twice_each()) == [0, 2, 4]
        with pytest.raises(Exception, match="already taken"):
            functional_datapipe("twice_each")(Twice)
        with pytest.raises(TypeError, match="as a IterDataPipe"):
            Twice([1])
        with pytest.raises(RuntimeError, match="Expected an instance as subtype"):
            list(IterableWrapper("ab").twice_each())
        with runtime_validation_disabled():
            assert list(IterableWrapper("ab").twice_each()) == ["aa", "bb"]
    finally:
        del IterDataPipe.functions["twice_each"]
    uncertain = non_deterministic(Twice)
    with guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="is non-deterministic"):
        uncertain(numbers())
    assert list(uncertain(numbers(2))) == [0, 2]


# The batches of two epochs from seed 5, and the next number of the stream.
ONE_PROCESS = [
    [[4, 10, 3, 19], [14, 12, 1, 9], [13, 18, 7, 16], [20, 5, 8, 17], [11, 15, 6, 2]],
    [[14, 9, 2, 13], [17, 20, 11, 16], [6, 10, 5, 18], [1, 8, 3, 4], [19, 7, 15, 12]],
]
TWO_WORKERS = [
    [[4, 3, 14, 1], [10, 19, 12, 9], [13, 7, 20, 8], [18, 16, 5, 17], [11, 6], [15, 2]],
    [[11, 18, 2, 16], [20, 3, 9, 19], [6, 8, 13, 14], [7, 1, 5, 15], [12, 17], [4, 10]],
]


@pytest.mark.parametrize(
    ("options", "expected", "following"),
    [
        ({}, ONE_PROCESS, 0.0332646369934082),
        ({"num_workers": 2}, TWO_WORKERS, 0.07241219282150269),
        ({"num_workers": 2, "persistent_workers": True}, TWO_WORKERS, 0.0332646369934082),
        ({"num_workers": 2, "worker_method": "thread"}, TWO_WORKERS, 0.07241219282150269),
    ],
)
def test_a_loader_seeds_and_shards(options, expected, following):
    torch.manual_seed(5)
    pipe = numbers(20).shuffle().sharding_filter().map(increment)
    loader = DataLoader(pipe, batch_size=4, shuffle=True, **options)
    assert [[batch.tolist() for batch in loader] for _ in range(2)] == expected
    assert len(loader) == 5
    assert torch.rand(1).item() == pytest.approx(following, abs=1e-7)


def test_a_loader_of_a_map_pipe():
    loader = DataLoader(SequenceWrapper(range(6)).map(increment), batch_size=4)
    assert [batch.tolist() for batch in loader] == [[1, 2, 3, 4], [5, 6]]


def test_pipes_are_not_imported_with_the_library():
    code = "import mica.utils.data, sys; print([m for m in sys.modules if 'datapipes' in m])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_profile_names_pipes():
    from mica.profiler import profile

    with profile() as recorded:
        list(numbers(3).map(increment))
    names = [event.name for event in recorded.events()]
    assert sum(name.startswith("Mapper(datapipe=IterableWrapper, fn=increment, input_col=None") for name in names) == 4
    assert sum(name.startswith("IterableWrapper(") for name in names) == 4  # three samples, and the end
