"""Saving: ranks plan together, each writes its pieces, one writes the metadata at last."""

import inspect
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum

from mica.distributed.checkpoint._storage_utils import _storage_setup
from mica.distributed.checkpoint.default_planner import DefaultSavePlanner
from mica.distributed.checkpoint.staging import AsyncStager, BlockingAsyncStager
from mica.distributed.checkpoint.stateful import Stateful
from mica.distributed.checkpoint.utils import _DistWrapper, _takes_old_order, is_alone

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    """Who saves while training goes on."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """When the copy is made, and when it is saved."""

    staging_completion: Future
    upload_completion: Future


def save_state_dict(state_dict, storage_writer, process_group=None, coordinator_rank=0, no_dist=False, planner=None):
    """save, by its older name."""
    warnings.warn(
        "`save_state_dict` is deprecated and will be removed in future versions.Please use `save` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_writer.reset()
    return _save_state_dict(state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner)


@_takes_old_order("storage_writer")
def save(
    state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None, no_dist=False,
    use_collectives=True,
):  # fmt: skip
    """Save a dictionary of tensors, values and objects with a state. Every rank writes what it has, and nothing twice."""
    no_dist = is_alone(no_dist, "save")
    return _save_state_dict(
        _stateful_to_state_dict(state_dict),
        _storage_setup(storage_writer, checkpoint_id, reader=False),
        process_group,
        no_dist=no_dist,
        planner=planner,
        use_collectives=use_collectives,
    )


def async_save(
    state_dict, *, checkpoint_id=None, storage_writer=None, planner=None, process_group=None,
    async_checkpointer_type=AsyncCheckpointerType.THREAD, async_stager=None, no_dist=False, use_collectives=True,
):  # fmt: skip
    """save of a copy, in a thread. Returns a future of the metadata; the state may change once this returns."""
    if async_checkpointer_type != AsyncCheckpointerType.THREAD:
        raise NotImplementedError(
            "async_save in a process of its own is not in Mica yet: use AsyncCheckpointerType.THREAD"
        )
    if async_stager is None:
        async_stager = storage_writer if isinstance(storage_writer, AsyncStager) else BlockingAsyncStager()
    staged = async_stager.stage(_stateful_to_state_dict(state_dict))
    threads = ThreadPoolExecutor(1, thread_name_prefix="async_save")

    def write():
        return save(
            staged.result() if isinstance(staged, Future) else staged,
            checkpoint_id=checkpoint_id,
            storage_writer=storage_writer,
            planner=planner,
            process_group=process_group,
            no_dist=no_dist,
            use_collectives=use_collectives,
        )

    saved = threads.submit(write)
    saved.add_done_callback(lambda _: threads.shutdown(wait=False))
    if isinstance(staged, Future):
        copied = Future()
        staged.add_done_callback(
            lambda done: copied.set_exception(done.exception()) if done.exception() else copied.set_result(None)
        )
        return AsyncSaveResponse(copied, saved)
    if async_stager.should_synchronize_after_execute:
        async_stager.synchronize_staging()
    return saved


def _stateful_to_state_dict(state_dict):
    """The dictionary with states in place of the objects that have them."""
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}


def _save_state_dict(
    state_dict, storage_writer, process_group=None, coordinator_rank=0, no_dist=False, planner=None,
    use_collectives=True,
):  # fmt: skip
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    planner = DefaultSavePlanner() if planner is None else planner
    metadata = None

    def plan_locally():
        if "storage_meta" in inspect.signature(planner.set_up_planner).parameters:
            planner.set_up_planner(
                state_dict=state_dict, storage_meta=storage_writer.storage_meta(), is_coordinator=ranks.is_coordinator
            )
        else:
            warnings.warn(
                "The function definition for SavePlanner.set_up_planner has been updated to include the storage_meta "
                "argument. Please update your implementation to include this parameter.",
                stacklevel=2,
            )
            planner.set_up_planner(state_dict, ranks.is_coordinator)
        options = {}
        if "kwargs" in inspect.signature(storage_writer.set_up_storage_writer).parameters:
            options = {"rank": ranks.rank, "use_collectives": use_collectives}
        storage_writer.set_up_storage_writer(ranks.is_coordinator, **options)
        return storage_writer.prepare_local_plan(planner.create_local_plan())

    def plan_for_all(plans):
        nonlocal metadata
        plans, metadata = planner.create_global_plan(plans)
        return storage_writer.prepare_global_plan(plans)

    def write():
        written = storage_writer.write_data(planner.finish_plan(plan), planner)
        written.wait()
        return written.value()

    def finish(results):
        storage_writer.finish(metadata=metadata, results=results)
        return metadata

    if use_collectives:
        plan = ranks.reduce_scatter("plan", plan_locally, plan_for_all)
        return ranks.all_reduce("write", write, finish)
    plan = plan_for_all([plan_locally()])[0]
    finish([write()])
    ranks.barrier()
    return metadata
