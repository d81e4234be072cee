"""Groups of some of the processes."""

import mica
from mica.distributed.groups import _make_group
from mica.distributed.process_group import Backend, BackendConfig, ProcessGroup
from mica.distributed.world import (
    GroupMember,
    _check_timeout,
    _get_default_group,
    _group,
    _world,
    get_backend,
    get_process_group_ranks,
    get_rank,
    get_world_size,
)

__all__ = ["new_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group"]


def new_group(
    ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None,
    device_id=None, sort_ranks=True,
):  # fmt: skip
    """A group of some of the processes. Every process of the world calls it, unless `use_local_synchronization` says that
    only those of the group do.
    """
    default = _get_default_group()
    world_size = default.size()
    ranks = list(range(world_size)) if ranks is None else list(ranks)
    if sort_ranks:
        ranks.sort()
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"ranks list must not contain duplicate entries, got {ranks}")
    for each in ranks:
        if not 0 <= each < world_size:
            raise ValueError(
                f"Rank {each} is out of range. Valid ranks are 0 to {world_size - 1} (world_size={world_size})"
            )
    timeout = _world.timeout if timeout is None else _check_timeout(timeout)
    if use_local_synchronization:
        import hashlib

        # Ranks outside do not count this group, so its name is made from what its members know.
        count = sum(1 for each in _world.pg_group_ranks.values() if list(each) == ranks)
        name = hashlib.sha1(",".join(map(str, [*ranks, count])).encode(), usedforsecurity=False).hexdigest()
    else:
        name = str(_world.group_count)
        _world.group_count += 1
    if default.rank() not in ranks:
        return None if use_local_synchronization else GroupMember.NON_GROUP_MEMBER
    if backend is None:
        config = BackendConfig(_world.pg_backend_config[default])
    else:
        config = BackendConfig(Backend(str(backend)))
    store = _world.pg_map[default][1]
    made = _make_group(
        name, group_desc or "undefined", ranks, ranks.index(default.rank()), config, store, timeout, pg_options
    )
    made.bound_device_id = device_id
    return made


def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, backend=None):
    """The one of several groups of a group's ranks that this process is in."""
    parent = _group(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    flat = [rank for ranks in split_ranks for rank in ranks]
    if len(set(flat)) != len(flat):
        raise ValueError("the split group cannot have duplicate ranks")
    members = get_process_group_ranks(parent)
    found = None
    for ranks in split_ranks:
        if any(not 0 <= rank < len(members) for rank in ranks):
            raise ValueError(f"the ranks {ranks} are not all in a group of {len(members)}")
        world_ranks = [members[rank] for rank in ranks]
        made = new_group(
            world_ranks,
            timeout,
            backend or get_backend(parent),
            pg_options,
            parent is not _world.default_pg,
            group_desc,
        )
        if isinstance(made, ProcessGroup):
            found = made
    return found


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Groups of `group_size` ranks each, one after the other, and the one that this process is in."""
    world_size = get_world_size(group)
    if group_size is None:
        if not mica.cuda.is_available():
            raise ValueError(
                "Default group size only takes effect when CUDA is available. If your subgroup is not based on a CUDA device, give group_size"
            )
        group_size = mica.cuda.device_count()
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if world_size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({world_size})")
    if world_size % group_size:
        raise ValueError(f"The world size ({world_size}) must be divisible by 'group_size={group_size}'")
    members = get_process_group_ranks(group)
    lists = [members[start : start + group_size] for start in range(0, world_size, group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, pg_options=None, group_desc=None):
    """The groups of several lists of ranks, and the one that this process is in."""
    if ranks_per_subgroup_list is None or len(ranks_per_subgroup_list) == 0:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    own, made, seen = None, [], {}
    for ranks in ranks_per_subgroup_list:
        each = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        made.append(each)
        for rank in ranks:
            if rank in seen:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {seen[rank]} and {ranks}")
            seen[rank] = ranks
            if rank == get_rank():
                own = each
    return own, made
