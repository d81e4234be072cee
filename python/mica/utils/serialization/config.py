"""How torch.save and torch.load work where a call does not say it. `patch` changes settings for a while."""

import contextlib

from mica import _C


class load:
    """mmap: whether files are mapped; endianness: the byte order of files that do not say theirs (None: little-endian);
    mmap_flags: MAP_PRIVATE or MAP_SHARED. Where records lie is read from the file, whatever calculate_storage_offsets is."""

    mmap = False
    endianness = None
    mmap_flags = 2
    calculate_storage_offsets = False


class save:
    """compute_crc32: whether records get checksums, without which damage goes unnoticed; storage_alignment: at which
    multiples the bytes of storages begin in a file. use_pinned_memory_for_d2h is of no effect."""

    compute_crc32 = True
    use_pinned_memory_for_d2h = False
    storage_alignment = 64


def _setting(name):
    part, _, key = name.partition(".")
    place = {"load": load, "save": save}.get(part)
    if place is None or not key or not hasattr(place, key):
        raise AttributeError(f"{__name__}.{name} does not exist")
    return place, key


@contextlib.contextmanager
def patch(name=None, value=None, **changes):
    """patch("save.storage_alignment", 4096), or patch({name: value}): settings that hold within the context."""
    wanted = dict(name) if isinstance(name, dict) else {name: value} if name is not None else {}
    wanted.update(changes)
    before = [(*_setting(key), getattr(*_setting(key))) for key in wanted]
    try:
        for key, new in wanted.items():
            setattr(*_setting(key), new)
        yield
    finally:
        for place, key, old in before:
            setattr(place, key, old)


def file_writer(f):
    """A writer of an archive with these settings."""
    step = save.storage_alignment
    if not isinstance(step, int) or step < 1 or step & (step - 1):
        raise ValueError(f"save.storage_alignment must be a power of two, but is {step}")
    return _C.PyTorchFileWriter(f, save.compute_crc32, step)
