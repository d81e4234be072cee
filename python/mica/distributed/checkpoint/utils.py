"""What saving and loading share: steps that all ranks take together, and the pieces that an index names."""

import functools
import io
import os
import pickle
import warnings

import mica
from mica.distributed.checkpoint.api import CheckpointException, _is_wrapped_exception, _wrap_exception

__all__ = ["find_state_dict_object", "find_tensor_shard"]


def _attempt(function, *args):
    """The result of a function, or its exception. A rank that fails must not leave the others waiting."""
    try:
        return function(*args)
    except BaseException as error:
        return _wrap_exception(error)


def _get_failure_dict(results):
    return {rank: each for rank, each in enumerate(results) if _is_wrapped_exception(each)}


class _DistWrapper:
    """Steps that all ranks take together, or one process alone. If one fails, all raise, and say who and how."""

    def __init__(self, group, use_dist, coordinator_rank):
        self.group, self.use_dist, self.coordinator_rank = group, use_dist, coordinator_rank
        self.global_coordinator_rank, self.rank, self.is_coordinator = 0, 0, True
        if use_dist:
            from mica import distributed as dist

            self._dist = dist
            self.global_coordinator_rank = (
                coordinator_rank if group is None else dist.get_global_rank(group, coordinator_rank)
            )
            self.rank = dist.get_rank(group)
            self.is_coordinator = self.rank == coordinator_rank

    def get_rank(self):
        return self.rank

    def get_world_size(self):
        return self._dist.get_world_size(self.group) if self.use_dist else 1

    def broadcast_object(self, object):
        values = [object]
        if self.use_dist:
            self._dist.broadcast_object_list(values, src=self.global_coordinator_rank, group=self.group)
        return values[0]

    def gather_object(self, object):
        if not self.use_dist:
            return [object]
        gathered = [None] * self.get_world_size() if self.is_coordinator else None
        self._dist.gather_object(object, gathered, dst=self.global_coordinator_rank, group=self.group)
        return gathered

    def all_gather_object(self, object):
        if not self.use_dist:
            return [object]
        gathered = [None] * self.get_world_size()
        self._dist.all_gather_object(gathered, object, group=self.group)
        return gathered

    def scatter_object(self, object_list):
        if not self.use_dist:
            return object_list[0]
        received = [None]
        self._dist.scatter_object_list(
            received,
            object_list if self.is_coordinator else None,
            src=self.global_coordinator_rank,
            group=self.group,
        )
        return received[0]

    def _reduced(self, step, everything, reduce_fun):
        """The coordinator's result for the values of all ranks, or the exception that all ranks raise."""
        failures = _get_failure_dict(everything)
        if not failures:
            result = _attempt(reduce_fun, everything)
            if not _is_wrapped_exception(result):
                return result
            failures = {self.rank: result}
        return CheckpointException(step, failures)

    def reduce_scatter(self, step, map_fun, reduce_fun):
        """Every rank computes a value. The coordinator computes from all of them one result for each rank."""
        gathered, results = self.gather_object(_attempt(map_fun)), None
        if self.is_coordinator:
            results = self._reduced(step, gathered, reduce_fun)
            if isinstance(results, CheckpointException):
                results = [results] * self.get_world_size()
        return _raised(self.scatter_object(results))

    def all_reduce(self, step, map_fun, reduce_fun):
        """Every rank computes a value. The coordinator computes from all of them one result, which every rank gets."""
        gathered = self.gather_object(_attempt(map_fun))
        result = self._reduced(step, gathered, reduce_fun) if self.is_coordinator else None
        return _raised(self.broadcast_object(result))

    def all_gather(self, step, map_fun):
        """Every rank computes, and gets what all have computed."""
        results = self.all_gather_object(_attempt(map_fun))
        if failures := _get_failure_dict(results):
            raise CheckpointException(step, failures)
        return results

    def broadcast(self, step, map_fun):
        """The coordinator computes, and all get it."""
        result = None
        if self.is_coordinator:
            result = _attempt(map_fun)
            if _is_wrapped_exception(result):
                result = CheckpointException(step, {self.rank: result})
        return _raised(self.broadcast_object(result))

    def barrier(self):
        if self.use_dist:
            self._dist.barrier(group=self.group)


def _raised(result):
    if isinstance(result, CheckpointException):
        raise result
    return result


def _all_gather_keys(local_dict, group=None):
    from mica import distributed as dist

    gathered = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, list(local_dict), group=group)
    return {key for keys in gathered for key in keys}


def _assert_same_keys(state_dict, process_group=None):
    """An error if another rank has a key that this one lacks."""
    from mica import distributed as dist

    if dist.get_world_size(process_group) > 1:
        missing = _all_gather_keys(state_dict, process_group) - set(state_dict)
        if missing:
            raise AssertionError(f"Key(s) present in other ranks but not this one, difference: {missing}")


# ---- values and pieces


def find_tensor_shard(tensor, index):
    """The part of a tensor on this rank that an index names."""
    if hasattr(tensor, "__get_tensor_shard__"):
        return tensor.__get_tensor_shard__(index)
    if hasattr(tensor, "device_mesh") and hasattr(tensor, "to_local"):
        return tensor.to_local()
    if index.offset is not None and any(index.offset):
        raise ValueError(f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'")
    return tensor


def find_state_dict_object(state_dict, index):
    """The value that an index names."""
    if index.fqn not in state_dict:
        raise ValueError(f"Could not find FQN: '{index.fqn}'")
    value = state_dict[index.fqn]
    if isinstance(value, mica.Tensor):
        return find_tensor_shard(value, index)
    if index.offset is not None:
        raise ValueError(f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'")
    return value


def narrow_tensor_by_index(tensor, offsets, sizes):
    """The box of a tensor, as a view."""
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        if size < tensor.size(dim):
            tensor = tensor.narrow(dim, offset, size)
    return tensor


def load_value(data):
    """Load a value that is not a tensor. A pickle with other classes than tensors and containers is loaded as torch
    loads it."""
    try:
        return mica.load(data, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        data.seek(0)
        return mica.load(data, map_location="cpu", weights_only=False)


class _ReaderView(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, base_stream, offset, length):
        super().__init__()
        self._base, self._begin, self._length, self._place = base_stream, offset, length, 0

    def seek(self, offset, whence=os.SEEK_SET):
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._length}[whence]
        self._place = max(start + offset, 0)
        return self._place

    def tell(self):
        return self._place

    def readable(self):
        return True

    def seekable(self):
        return self._base.seekable()

    def readinto(self, buffer):
        left = max(self._length - self._place, 0)
        self._base.seek(self._begin + self._place)
        data = self._base.read(min(len(buffer), left))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def _create_file_view(file, offset, length):
    return _ReaderView(file, offset, length)


def _takes_old_order(name):
    """Decorates save and load: torch once took the storage as the second argument."""

    def decorate(function):
        @functools.wraps(function)
        def called(*args, **kwargs):
            if len(args) != 2:
                return function(*args, **kwargs)
            warnings.warn(
                f"The argument order of {function.__name__} has been changed. Please check the document to avoid future "
                "breakages.",
                stacklevel=2,
            )
            assert name not in kwargs, f"{name} in kwargs: {(args, kwargs)}"
            return function(args[0], **kwargs, **{name: args[1]})

        return called

    return decorate


def is_alone(no_dist, what):
    """Whether one process saves or loads alone. A warning says so."""
    from mica import distributed as dist

    if no_dist or not dist.is_initialized():
        warnings.warn(
            "torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to "
            f"{what} in a single process.",
            stacklevel=4,
        )
        return True
    return False
