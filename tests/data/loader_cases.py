"""Loaders whose batches, and what they leave of the random stream, are recorded from torch and compared live."""


def make_datasets(lib):
    data = lib.utils.data

    class Squares(data.Dataset):
        def __len__(self):
            return 23

        def __getitem__(self, i):
            return lib.tensor(i), i * i, lib.rand(1)

    class Stream(data.IterableDataset):
        def __iter__(self):
            info = data.get_worker_info()
            return iter(range(11) if info is None else range(100 * info.id, 100 * info.id + 4 + 3 * info.id))

    class Eager(data.Sampler):
        """Draws when it is asked for an iterator, not when the iterator is first used."""

        def __iter__(self):
            return iter(lib.randperm(9).tolist())

        def __len__(self):
            return 9

    return Squares(), Stream(), Eager()


def cases(lib):
    """Functions that make a loader, by name."""
    data = lib.utils.data
    squares, stream, eager = make_datasets(lib)
    tensors = data.TensorDataset(lib.arange(17.0), lib.arange(17) * 2)

    def generator():
        return lib.Generator().manual_seed(5)

    loaders = {
        "in order": lambda n: data.DataLoader(squares, batch_size=4, num_workers=n),
        "shuffled": lambda n: data.DataLoader(squares, batch_size=5, shuffle=True, num_workers=n),
        "drop last": lambda n: data.DataLoader(squares, 5, True, drop_last=True, num_workers=n, generator=generator()),
        "tensors": lambda n: data.DataLoader(tensors, batch_size=4, shuffle=True, num_workers=n),
        "no batches": lambda n: data.DataLoader(tensors, batch_size=None, shuffle=True, num_workers=n),
        "subsets": lambda n: data.DataLoader(data.random_split(tensors, [0.5, 0.5])[1], 3, num_workers=n),
        "stream": lambda n: data.DataLoader(stream, batch_size=3, num_workers=n),
        "stream, drop last": lambda n: data.DataLoader(stream, batch_size=3, drop_last=True, num_workers=n),
        "stream, no batches": lambda n: data.DataLoader(stream, batch_size=None, num_workers=n),
        "replacement": lambda n: data.DataLoader(
            range(20), 7, sampler=data.RandomSampler(range(20), replacement=True, num_samples=70), num_workers=n
        ),
        "more than there are": lambda n: data.DataLoader(
            range(6), 4, sampler=data.RandomSampler(range(6), num_samples=15), num_workers=n
        ),
        "weighted": lambda n: data.DataLoader(
            range(4), 5, sampler=data.WeightedRandomSampler([1.0, 2.0, 3.0, 4.0], 20), num_workers=n
        ),
        "subset sampler": lambda n: data.DataLoader(
            range(20), 4, sampler=data.SubsetRandomSampler(list(range(5, 15))), num_workers=n
        ),
        "eager sampler": lambda n: data.DataLoader(range(9), 4, sampler=eager, num_workers=n),
        "batch sampler": lambda n: data.DataLoader(
            range(9), batch_sampler=data.BatchSampler(eager, 2, True), num_workers=n
        ),
    }
    return {f"{name}, {n} workers": (lambda make=make, n=n: make(n)) for name, make in loaders.items() for n in (0, 2)}


def plain(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def run(lib, name):
    """Two epochs from one seed, then what comes next of the stream."""
    lib.manual_seed(11)
    loader = cases(lib)[name]()
    epochs = [[plain(batch) for batch in loader] for _ in range(2)]
    return [*epochs, lib.rand(2).tolist()]
