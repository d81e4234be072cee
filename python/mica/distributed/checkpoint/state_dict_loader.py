"""Loading: ranks plan together, and each reads the pieces that it needs."""

import inspect
import warnings

from mica.distributed.checkpoint._storage_utils import _storage_setup
from mica.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from mica.distributed.checkpoint.stateful import Stateful
from mica.distributed.checkpoint.utils import _DistWrapper, _takes_old_order, is_alone

__all__ = ["load", "load_state_dict"]


def load_state_dict(state_dict, storage_reader, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    """load, by its older name."""
    warnings.warn(
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


@_takes_old_order("storage_reader")
def load(state_dict, *, checkpoint_id=None, storage_reader=None, planner=None, process_group=None, no_dist=False):
    """Fill a dictionary in place: tensors keep their memory, other values are replaced, objects get their state back."""
    no_dist = is_alone(no_dist, "load")
    reader = _storage_setup(storage_reader, checkpoint_id, reader=True)
    # All ranks use the same order, since asking an object for its state may need all of them.
    keys = sorted(state_dict)
    states = {}
    for key in keys:
        if key in state_dict:
            value = state_dict[key]
            states[key] = value.state_dict() if isinstance(value, Stateful) else value
    _load_state_dict(states, reader, process_group, no_dist=no_dist, planner=planner)
    for key in keys:
        if key in state_dict:
            if isinstance(state_dict[key], Stateful):
                state_dict[key].load_state_dict(states[key])
            else:
                state_dict[key] = states[key]


def _read_metadata(reader, rank):
    """The metadata of the checkpoint, or of this rank where ranks have saved without asking each other."""
    try:
        return reader.read_metadata(), True
    except Exception as error:
        if "kwargs" not in inspect.signature(reader.read_metadata).parameters:
            raise
        try:
            return reader.read_metadata(rank=rank), False
        except FileNotFoundError:
            raise error from None


def _load_state_dict(state_dict, storage_reader, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    planner = DefaultLoadPlanner() if planner is None else planner

    def plan_locally():
        metadata, together = _read_metadata(storage_reader, ranks.rank)
        planner.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        options = {}
        if "kwargs" in inspect.signature(storage_reader.set_up_storage_reader).parameters:
            options = {"rank": ranks.rank, "use_collectives": together}
        storage_reader.set_up_storage_reader(metadata, ranks.is_coordinator, **options)
        return storage_reader.prepare_local_plan(planner.create_local_plan())

    def plan_for_all(plans):
        return storage_reader.prepare_global_plan(planner.create_global_plan(plans))

    plan = ranks.reduce_scatter("plan", plan_locally, plan_for_all)

    def read():
        storage_reader.read_data(planner.finish_plan(plan), planner).wait()

    ranks.all_gather("read", read)


def _load_state_dict_from_keys(keys=None, *, checkpoint_id=None, storage_reader=None, process_group=None):
    """All of a checkpoint, or what is under some keys, as a new dictionary."""
    no_dist = is_alone(False, "load")
    reader = _storage_setup(storage_reader, checkpoint_id, reader=True)
    loaded = {}
    planner = _EmptyStateDictLoadPlanner(keys={keys} if isinstance(keys, str) else keys)
    _load_state_dict(loaded, reader, process_group, no_dist=no_dist, planner=planner)
    return loaded
