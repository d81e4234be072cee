"""Loaders on Mica and on torch: the same batches from the same seed."""

import random

import pytest

torch = pytest.importorskip("torch")
import mica  # noqa: E402
import mica.utils.data  # noqa: E402
import numpy as np  # noqa: E402
from loader_cases import cases, run  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Length of split")]


@pytest.mark.parametrize("name", cases(mica))
def test_same_batches(name):
    assert run(mica, name) == run(torch, name)


def seeds_of_workers(lib):
    class Seeds(lib.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            info = lib.utils.data.get_worker_info()
            return info.id, info.seed % 1000, random.random(), np.random.rand(), lib.rand(1).item()

    lib.manual_seed(3)
    loader = lib.utils.data.DataLoader(Seeds(), batch_size=None, num_workers=2)
    return [list(each) for each in loader]


def test_same_seeds_in_workers():
    assert seeds_of_workers(mica) == seeds_of_workers(torch)


SAMPLES = [
    [(1, 2.0, "a"), (3, 4.0, "b")],
    [{"x": 1, "y": [1.0, 2]}, {"x": 2, "y": [3.0, 4]}],
    [[1, 2], [3, 4]],
    [np.arange(3), np.arange(3)],
    [np.float32(1), np.float32(2)],
    [np.float64(1), np.float64(2)],
    [True, False],
    [b"a", b"b"],
    [(np.array([1.0]), {"k": (1, 2)}), (np.array([2.0]), {"k": (3, 4)})],
    [[1], [2, 3]],
    [object(), object()],
    [{"a": 1}, {"b": 2}],
    [np.array(["a"]), np.array(["b"])],
]


def shown(value):
    if hasattr(value, "tolist") and hasattr(value, "requires_grad"):
        return ["tensor", str(value.dtype), value.tolist()]
    if isinstance(value, dict):
        return {key: shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(shown, value)]
    return value if isinstance(value, (str, bytes, int, float)) else type(value).__name__


def outcome(function, *args):
    try:
        return shown(function(*args))
    except Exception as error:
        return type(error).__name__, str(error)[:40]


@pytest.mark.parametrize("samples", SAMPLES, ids=range(len(SAMPLES)))  # some have addresses in their names
def test_collate(samples):
    ours, theirs = mica.utils.data, torch.utils.data
    assert outcome(ours.default_collate, samples) == outcome(theirs.default_collate, samples)
    for sample in samples:
        assert outcome(ours.default_convert, sample) == outcome(theirs.default_convert, sample)


BAD_ARGUMENTS = [
    {"num_workers": -1},
    {"timeout": -1},
    {"prefetch_factor": 2},
    {"persistent_workers": True},
    {"batch_size": 0},
    {"batch_size": 1.5},
    {"batch_size": None, "drop_last": True},
    {"shuffle": True, "sampler": [1]},
    {"batch_sampler": [[1]], "batch_size": 2},
    {"multiprocessing_context": "fork"},
    {"multiprocessing_context": "nonsense", "num_workers": 1},
    {"multiprocessing_context": 3, "num_workers": 1},
]


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=str)
def test_bad_arguments(arguments):
    results = []
    for lib in (mica, torch):
        try:
            lib.utils.data.DataLoader(range(4), **arguments)
            results.append(None)
        except Exception as error:
            results.append((type(error), str(error)))
    assert results[0] == results[1] and results[0] is not None
