"""Where storages lie when they are saved and where they go when they are loaded: torch's tags, such as "cpu" and "cuda:0"."""

from mica import _C
from mica.storage import UntypedStorage

_packages = []  # (priority, tagger, deserializer), by priority


def register_package(priority, tagger, deserializer):
    """Say how storages of a device are tagged in files, and how a tagged one is put in its place.

    The tagger gives a tag or None, the deserializer a storage or None; the lowest priority is asked first.
    """
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda package: package[0])


def location_tag(storage):
    """The tag that the storage gets in a file."""
    for _, tagger, _ in _packages:
        location = tagger(storage)
        if location:
            return location
    raise RuntimeError(f"don't know how to determine data location of a storage on {storage.device}")


def default_restore_location(storage, location):
    """The storage, moved to where the tag says."""
    for _, _, deserializer in _packages:
        placed = deserializer(storage, location)
        if placed is not None:
            return placed
    raise RuntimeError(
        f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {location})"
    )


def restorer(map_location):
    """The function (storage, location) -> storage that a map_location stands for."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(storage, map_location.get(location, location))
    if isinstance(map_location, (str, bytes, _C.device)):
        tag = map_location.decode() if isinstance(map_location, bytes) else str(map_location)
        return lambda storage, location: default_restore_location(storage, tag)

    def placed(storage, location):
        result = map_location(storage, location)
        return (
            default_restore_location(storage, location)
            if result is None
            else getattr(result, "_untyped_storage", result)
        )

    return placed


def is_meta(map_location):
    return isinstance(map_location, (str, _C.device)) and str(map_location) == "meta"


def _tag_of(device_type, tag):
    return lambda storage: tag(storage) if storage.device.type == device_type else None


def _restore_cpu(storage, location):
    return storage.cpu() if location == "cpu" else None


def _restore_meta(storage, location):
    return UntypedStorage(len(storage), device="meta") if location == "meta" else None


def _restore_cuda(storage, location):
    if not location.startswith("cuda"):
        return None
    if not _C._device_count("cuda"):
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running "
            "on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to "
            "the CPU."
        )
    device = _C.device(location)
    if device.index is not None and device.index >= _C._device_count("cuda"):
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {device.index} but torch.cuda.device_count() is "
            f"{_C._device_count('cuda')}. Please use torch.load with map_location to map your storages to an existing "
            "device."
        )
    return storage.to(device=device)


def _tag_of_backend(storage):
    device = storage.device
    return f"{device.type}:{device.index or 0}" if device.type not in ("cpu", "meta") else None


def _restore_to_backend(storage, location):
    """Move a storage to the device of an opened backend. Tags of device types without a backend are left to others."""
    try:
        device = _C.device(location)
    except RuntimeError:
        return None
    return storage.to(device=device) if _C._device_count(device) else None


register_package(10, _tag_of("cpu", lambda storage: "cpu"), _restore_cpu)
register_package(20, _tag_of("cuda", lambda storage: f"cuda:{storage.device.index or 0}"), _restore_cuda)
register_package(22, _tag_of("meta", lambda storage: "meta"), _restore_meta)
register_package(30, _tag_of_backend, _restore_to_backend)
