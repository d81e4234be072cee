"""The DataLoader's arguments, in this process and with workers."""

import os
import pickle
import resource
import subprocess
import sys
import warnings

import mica
import numpy as np
import pytest
from mica.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

KINDS = [{}, {"num_workers": 2}, {"num_workers": 2, "worker_method": "thread"}]


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return mica.tensor(i), i * i


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_batches(kind):
    loader = DataLoader(Squares(), batch_size=4, **kind)
    assert len(loader) == 3
    for _ in range(2):
        assert [b.tolist() for _, b in loader] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81]]
    assert [len(b) for b, _ in DataLoader(Squares(), batch_size=4, drop_last=True, **kind)] == [4, 4]
    assert [b[1] for b in DataLoader(Squares(), batch_size=None, **kind)] == [i * i for i in range(10)]
    assert [list(b) for b in DataLoader("abcd", 2, collate_fn=list, **kind)] == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("kind", KINDS[1:], ids=str)
def test_persistent_workers(kind):
    loader = DataLoader(Squares(), batch_size=3, persistent_workers=True, **kind)
    first = [b.tolist() for _, b in loader]
    workers = getattr(loader._iterator, "_workers", None)
    for _, _ in loader:
        break  # what was under way is left behind
    assert [b.tolist() for _, b in loader] == first
    if workers is not None:
        assert loader._iterator._workers == workers and all(each.is_alive() for each in workers)


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(6)) if info is None else iter(range(info.id, 6, info.num_workers))

    def __len__(self):
        return 6


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("persistent", [False, True])
def test_streams(kind, persistent):
    if persistent and not kind:
        pytest.skip("nobody to persist")
    loader = DataLoader(Stream(), batch_size=2, persistent_workers=persistent, **kind)
    for _ in range(3):
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(6))
    assert len(loader) == 3


def test_streams_that_are_longer_than_they_say():
    class Long(Stream):
        def __len__(self):
            return 1

    loader = DataLoader(Long(), batch_size=2)
    assert len(loader) == 1
    with pytest.warns(UserWarning, match="Length of IterableDataset"):
        list(loader)
    for bad in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        with pytest.raises(ValueError, match="IterableDataset: expected unspecified"):
            DataLoader(Stream(), **bad)


@pytest.mark.parametrize("kind", KINDS[1:], ids=str)
def test_out_of_order(kind):
    loader = DataLoader(range(40), batch_size=1, in_order=False, **kind)
    assert sorted(batch.item() for batch in loader) == list(range(40))


class Info(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        info = get_worker_info()
        return info.id, info.num_workers, info.seed, len(info.dataset), os.getpid(), mica.get_num_threads()


def note_worker(worker_id):
    os.environ["NOTED"] = str(worker_id)


class Noted(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return int(os.environ["NOTED"]) == get_worker_info().id


def test_worker_info():
    assert get_worker_info() is None
    samples = list(DataLoader(Info(), batch_size=None, num_workers=2))
    assert {each[0] for each in samples} == {0, 1} and {each[1] for each in samples} == {2}
    assert len({each[2] - each[0] for each in samples}) == 1
    assert {each[3] for each in samples} == {8} and len({each[4] for each in samples} - {os.getpid()}) == 2
    assert {each[5] for each in samples} == {1}
    assert all(DataLoader(Noted(), batch_size=None, num_workers=2, worker_init_fn=note_worker))


class Varied(Dataset):
    """Samples of every kind that has to cross from process to process."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        large = mica.full((200, 100), float(i))
        part = mica.arange(10**6)[i : i + 3]
        leaf = mica.nn.Parameter(mica.full((3,), float(i)))
        return {
            "large": large,
            "row": large[1],
            "part": part,
            "channels": mica.ones(2, 3, 40, 50).to(memory_format=mica.channels_last),
            "leaf": leaf,
            "array": np.full((100, 100), i),
            "small array": np.arange(i),
            "text": "x" * 200_000,
            "empty": mica.empty(0, 4),
            "meta": mica.empty(3, device="meta"),
            "half": mica.ones(3, dtype=mica.bfloat16),
            "conj": mica.tensor([1 + 2j]).conj(),
            "none": None,
        }


@pytest.mark.parametrize("kind", KINDS[1:], ids=str)
def test_everything_arrives(kind):
    for i, sample in enumerate(DataLoader(Varied(), batch_size=None, collate_fn=lambda x: x, **kind)):
        assert sample["large"].shape == (200, 100) and sample["large"].sum().item() == 20000 * i
        assert sample["row"].data_ptr() == sample["large"].data_ptr() + 400
        assert sample["part"].tolist() == [i, i + 1, i + 2]
        assert sample["channels"].is_contiguous(memory_format=mica.channels_last)
        assert isinstance(sample["leaf"], mica.nn.Parameter) and sample["leaf"].requires_grad
        assert (sample["array"] == i).all() and sample["small array"].tolist() == list(range(i))
        assert len(sample["text"]) == 200_000 and sample["empty"].shape == (0, 4) and sample["meta"].is_meta
        assert sample["half"].dtype == mica.bfloat16 and sample["conj"].tolist() == [1 - 2j] and sample["none"] is None


def test_batches_that_are_kept_stay_as_they_are():
    """Memory goes back to the workers when the last tensor over it is gone, not earlier."""
    data = TensorDataset(mica.arange(400 * 1000.0).reshape(400, 1000))
    kept = [batch[0][2] for batch in DataLoader(data, batch_size=10, num_workers=2)]
    for i, row in enumerate(kept):
        assert row.tolist() == [float(v) for v in range((10 * i + 2) * 1000, (10 * i + 3) * 1000)]


def test_memory_is_used_again():
    data = TensorDataset(mica.ones(2000, 1000))
    addresses = {batch[0].data_ptr() for batch in DataLoader(data, batch_size=20, num_workers=2)}
    assert len(addresses) < 20


def test_more_batches_are_kept_than_files_can_be_open():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limit[1]))
    try:
        data = TensorDataset(mica.ones(500, 100, 100))
        kept = list(DataLoader(data, num_workers=2))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert len(kept) == 500 and all(batch[0].sum().item() == 10000 for batch in kept)


def test_changing_a_batch_is_safe():
    data = TensorDataset(mica.zeros(100, 1000))
    for batch in DataLoader(data, batch_size=10, num_workers=2):
        assert batch[0].sum().item() == 0
        batch[0].fill_(1)
    assert data.tensors[0].sum().item() == 0


def test_fixed_attributes():
    loader = DataLoader(range(4))
    for name in ("batch_size", "sampler", "dataset", "drop_last", "batch_sampler", "persistent_workers"):
        with pytest.raises(ValueError, match="should not be set after DataLoader is initialized"):
            setattr(loader, name, 1)
    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(loader))
    with pytest.raises(ValueError, match="worker_method"):
        DataLoader(range(4), worker_method="fiber")


def test_warnings():
    with pytest.warns(UserWarning, match="suggested max number of worker"):
        DataLoader(range(4), num_workers=1000)
    if not mica.cuda.is_available():
        with pytest.warns(UserWarning, match="no accelerator is found"):
            assert len(list(DataLoader(range(4), pin_memory=True))) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(DataLoader(range(4)))


PROGRAM = """
import mica
from mica.utils.data import DataLoader, TensorDataset, Dataset

class Own(Dataset):
    def __init__(self):
        self.x = mica.arange(100000.0).reshape(100, 1000)
    def __len__(self):
        return 100
    def __getitem__(self, i):
        return self.x[i]

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        loader = DataLoader(Own(), batch_size=10, num_workers=2, multiprocessing_context=method)
        assert [b[0, 0].item() for b in loader] == [1e4 * i for i in range(10)]
    print("fine")
"""


def test_other_ways_to_start(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=60)
    assert result.stdout == "fine\n" and result.stderr == ""
