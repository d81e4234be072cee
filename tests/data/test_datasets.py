"""Datasets, samplers and collation."""

import collections

import mica
import numpy as np
import pytest
from mica.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)
from mica.utils.data._utils.collate import collate, default_collate_fn_map


class Numbers(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self):
        return self.n


def test_datasets():
    rows = TensorDataset(mica.arange(6.0).reshape(3, 2), mica.arange(3))
    assert len(rows) == 3 and [part.tolist() for part in rows[1]] == [[2, 3], 1]
    with pytest.raises(AssertionError, match="Size mismatch"):
        TensorDataset(mica.ones(2), mica.ones(3))
    joined = Subset(range(10), [1, 2]) + Subset(range(10), [7])
    assert isinstance(joined, ConcatDataset) and [joined[i] for i in range(3)] == [1, 2, 7] and joined[-1] == 7
    with pytest.raises(ValueError, match="absolute value of index"):
        joined[-4]
    with pytest.raises(IndexError):
        joined[3]
    assert list(Numbers(2) + Numbers(3)) == [0, 1, 0, 1, 2] and len(ChainDataset([Numbers(2), Numbers(3)])) == 5
    with pytest.raises(AssertionError):
        ConcatDataset([])
    with pytest.raises(AssertionError):
        ConcatDataset([Numbers(2)])
    with pytest.raises(AssertionError):
        list(ChainDataset([[1]]))
    with pytest.raises(NotImplementedError):
        Dataset()[0]
    assert isinstance(Dataset[int], object) and not hasattr(Dataset, "__len__")


def test_stacks():
    assert StackDataset(range(3), "abc")[1] == (1, "b")
    named = StackDataset(x=range(3), y="abc")
    assert named[2] == {"x": 2, "y": "c"} and named.__getitems__([0, 1]) == [{"x": 0, "y": "a"}, {"x": 1, "y": "b"}]
    assert len(named) == 3
    with pytest.raises(ValueError, match="Size mismatch"):
        StackDataset(range(2), range(3))
    with pytest.raises(ValueError, match="At least one"):
        StackDataset()
    with pytest.raises(ValueError, match="Supported either"):
        StackDataset(range(2), x=range(2))


def test_subsets():
    subset = Subset(TensorDataset(mica.arange(5)), [4, 2])
    assert len(subset) == 2 and subset[0][0].item() == 4 and subset[[0, 1]][0].tolist() == [4, 2]

    class Half(Subset):
        def __getitem__(self, i):
            return 0

    with pytest.raises(NotImplementedError, match="__getitems__"):
        Half(range(3), [0])


def test_random_split():
    parts = random_split(range(10), [3, 7])
    assert sorted(i for part in parts for i in part.indices) == list(range(10)) and len(parts[0]) == 3
    assert [len(part) for part in random_split(range(11), [0.5, 0.5])] == [6, 5]
    with pytest.raises(ValueError, match="Sum of input lengths"):
        random_split(range(10), [3, 3])
    with pytest.raises(ValueError, match="Fraction at index 0"):
        random_split(range(10), [-0.5, 1.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        random_split(range(1), [0.5, 0.5])


def test_samplers():
    assert list(SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(RandomSampler(range(5))) == list(range(5)) and len(RandomSampler(range(5), num_samples=9)) == 9
    assert sorted(SubsetRandomSampler([7, 8, 9])) == [7, 8, 9]
    drawn = list(WeightedRandomSampler([0, 1.0, 0], 5))
    assert drawn == [1] * 5
    assert sorted(WeightedRandomSampler([1.0, 2.0], 2, replacement=False)) == [0, 1]
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]] and len(BatchSampler(range(5), 2, True)) == 2
    assert len(BatchSampler(range(5), 2, False)) == 3
    with pytest.raises(NotImplementedError):
        iter(Sampler())
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="batch_size should be a positive integer"):
            BatchSampler(range(5), bad, False)
    with pytest.raises(ValueError, match="num_samples"):
        RandomSampler([])
    with pytest.raises(TypeError, match="replacement"):
        RandomSampler([1], replacement=1)
    with pytest.raises(ValueError, match="1d sequence"):
        WeightedRandomSampler([[1.0]], 1)
    with pytest.raises(ValueError, match="Invalid rank"):
        DistributedSampler(range(4), 2, 2)
    sampler = DistributedSampler(range(100), 2, 0)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first and len(sampler) == 50


Point = collections.namedtuple("Point", ["x", "y"])


def test_collate():
    assert default_collate([1, 2]).tolist() == [1, 2] and default_collate([1.5, 2]).dtype == mica.float64
    assert default_collate(["a", "b"]) == ["a", "b"]
    assert default_collate([mica.ones(2), mica.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    point = default_collate([Point(1, 2.0), Point(3, 4.0)])
    assert type(point) is Point and point.x.tolist() == [1, 3]
    batch = default_collate([{"a": (1, [2])}, {"a": (3, [4])}])
    assert batch["a"][0].tolist() == [1, 3] and batch["a"][1][0].tolist() == [2, 4]
    ordered = default_collate([collections.OrderedDict(a=1), collections.OrderedDict(a=2)])
    assert type(ordered) is collections.OrderedDict
    assert default_collate([np.arange(2), np.arange(2)]).shape == (2, 2)
    assert default_collate([np.float32(1), np.float32(2)]).dtype == mica.float32
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="default_collate: batch must contain tensors"):
        default_collate([object()])
    with pytest.raises(TypeError, match="default_collate"):
        default_collate([np.array(["a"])])


def test_collation_can_be_extended():
    class Own:
        pass

    def join(batch, *, collate_fn_map=None):
        return len(batch)

    assert collate([Own(), Own()], collate_fn_map={Own: join}) == 2
    default_collate_fn_map[Own] = join
    try:
        assert default_collate([(Own(), 1), (Own(), 2)])[0] == 2
    finally:
        del default_collate_fn_map[Own]


def test_convert():
    converted = default_convert({"a": np.arange(2), "b": (1, np.float64(2)), "c": "text", "d": Point(np.array(1), 2)})
    assert converted["a"].tolist() == [0, 1] and converted["b"][0] == 1 and converted["b"][1].item() == 2
    assert converted["c"] == "text" and converted["d"].x.item() == 1
    strings = np.array(["a"])
    assert default_convert(strings) is strings


def test_rows_of_tensors_are_taken_at_once():
    x, y = mica.arange(40.0).reshape(20, 2), mica.arange(20)
    loader = DataLoader(Subset(TensorDataset(x, y), list(range(10, 20))), batch_size=4)
    batch = next(iter(loader))
    assert type(batch) is list and batch[0].tolist() == x[10:14].tolist() and batch[1].tolist() == [10, 11, 12, 13]
    batch[0].zero_()  # the batch is a copy
    assert x[10].tolist() == [20, 21]
    with pytest.raises(IndexError):
        list(DataLoader(TensorDataset(y), sampler=[25]))
    assert next(iter(DataLoader(TensorDataset(y), sampler=[-1])))[0].tolist() == [19]
    weights = mica.ones(4, 2, requires_grad=True)
    next(iter(DataLoader(TensorDataset(weights), batch_size=2)))[0].sum().backward()
    assert weights.grad.sum().item() == 4
