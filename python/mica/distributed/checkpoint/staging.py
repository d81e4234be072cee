"""Copies of a state, so that training may go on while it is saved."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import mica

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]


def copy_to_cpu(value, kept=None):
    """A copy of all tensors in dictionaries, lists and tuples; into those of an earlier copy where they fit."""
    if isinstance(value, mica.Tensor):
        local = value.detach()
        if hasattr(value, "device_mesh"):
            return local.clone()
        if (
            isinstance(kept, mica.Tensor)
            and (kept.shape, kept.dtype) == (local.shape, local.dtype)
            and kept.device.type == "cpu"
        ):
            return kept.copy_(local)
        return local.clone() if local.device.type == "cpu" else local.cpu()
    if isinstance(value, dict):
        kept = kept if isinstance(kept, dict) else {}
        return {key: copy_to_cpu(each, kept.get(key)) for key, each in value.items()}
    if type(value) in (list, tuple):
        kept = kept if isinstance(kept, (list, tuple)) and len(kept) == len(value) else [None] * len(value)
        return type(value)(copy_to_cpu(each, old) for each, old in zip(value, kept, strict=True))
    return value


@runtime_checkable
class AsyncStager(Protocol):
    """Makes the copy that is saved."""

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self):
        """Whether synchronize_staging is to be called once saving has begun."""
        return self._synchronize_after_execute

    def stage(self, state_dict):
        """The copy, or a future of it."""
        raise NotImplementedError(f"{type(self).__name__} must implement stage method")

    def synchronize_staging(self):
        """Wait until the state may be changed again."""

    def close(self):
        """Give back what was kept."""


class BlockingAsyncStager(AsyncStager):
    """Copies at once. It can keep the memory of the copy for the next one."""

    _synchronize_after_execute = False

    def __init__(self, cache_staged_state_dict=False, type_check=False):
        self.cache_staged_state_dict, self.type_check = cache_staged_state_dict, type_check
        self.state_dict_cache = None

    def stage(self, state_dict):
        if not self.cache_staged_state_dict:
            return copy_to_cpu(state_dict)
        self.state_dict_cache = copy_to_cpu(state_dict, self.state_dict_cache)
        return self.state_dict_cache

    def synchronize_staging(self):
        """Returns at once: the copy is complete."""

    def close(self):
        self.state_dict_cache = None


@dataclass
class StagingOptions:
    """Ways to copy faster from a GPU."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager(BlockingAsyncStager):
    """Copies at once; with use_async_staging the copy is handed over as a future."""

    def __init__(self, config=None):
        super().__init__()
        self._config = StagingOptions() if config is None else config

    def stage(self, state_dict, **kwargs):
        staged = super().stage(state_dict)
        if not self._config.use_async_staging:
            return staged
        from concurrent.futures import Future

        future = Future()
        future.set_result(staged)
        return future
