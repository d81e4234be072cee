"""How the ranks of a group get an engine together."""

import datetime
import os
import time

from mica.distributed._engine import engine
from mica.distributed._errors import DistBackendError, DistNetworkError, DistStoreError
from mica.distributed.lateness import answer_questions, seconds_of


def meet(store, rank, size, timeout, name, world_ranks, world):
    """The engine of a new group: its ranks tell each other through the store where they are."""
    host = os.environ.get("MICA_DISTRIBUTED_HOST", "") + engine.host_identity()
    store.set(f"rank{rank}", f"{host}|{os.getpid()}")
    store.set_timeout(timeout)
    keys = [f"rank{each}" for each in range(size)]
    try:
        if world is not None:
            _wait_for(store, keys, timeout, f"new_group {name!r}", world_ranks, world)
        places = [value.decode().rpartition("|") for value in store.multi_get(keys)]
    except DistBackendError:
        raise
    except RuntimeError as error:
        try:
            missing = [each for each in range(size) if not store.check([keys[each]])]
        except RuntimeError:
            raise error from None
        if not missing:
            raise
        raise type(error)(
            f"the group {name!r} of {size} ranks has not met within {timeout.total_seconds():.0f} s: "
            f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} did not come"
        ) from error
    if any(place[0] != places[0][0] for place in places):
        hosts = len({place[0] for place in places})
        return _across_hosts(store, rank, size, timeout, name, hosts)
    if world is None:  # this group is a world of its own, in which waiting ranks see each other
        world_ranks = list(range(size))
    warning = seconds_of("MICA_DISTRIBUTED_LATE_WARNING", 10.0)
    if rank == 0:
        group = engine.Group(name, rank, world_ranks, world, -1, -1, warning)
        store.set("segment", f"{os.getpid()}:{group.descriptor}")
    else:
        process, descriptor = store.get("segment").decode().split(":")
        group = engine.Group(name, rank, world_ranks, world, int(process), int(descriptor), warning)
    group.meet(timeout.total_seconds())
    if world is None:
        answer_questions(group)
    return group


def _wait_for(store, keys, timeout, what, world_ranks, world):
    """Waits for keys of all ranks, where others of the world can see it: a rank that cannot come is an error."""
    began, late = time.monotonic(), world_ranks[0]
    try:
        while True:
            waited = time.monotonic() - began
            left = timeout.total_seconds() - waited
            try:
                store.wait(keys, datetime.timedelta(seconds=max(min(left, 0.5), 0.001)))
                return
            except DistStoreError:
                if left <= 0.5:
                    return  # the next wait raises an error that says who did not come
            except DistNetworkError:  # the store has ended with rank 0, which may have said why
                world.stand_still(late, what, waited)
                raise
            missing = [rank for rank, key in zip(world_ranks, keys, strict=True) if not store.check([key])]
            if missing:
                late = missing[0]
                world.stand_still(late, what, waited)
    finally:
        world.stand_no_more()


def _across_hosts(store, rank, size, timeout, name, hosts):
    path = os.path.join(os.path.dirname(engine.__file__), "libmica_gloo.so")
    if not os.path.exists(path):
        raise DistBackendError(
            f"the ranks of the group {name!r} are on {hosts} hosts, which needs the Gloo library: this build has none "
            "(install libgloo-dev and build again)"
        )
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    silence = seconds_of("MICA_DISTRIBUTED_LINK_LIMIT", 8.0)
    limit = timeout.total_seconds()
    try:
        return engine.open_gloo(path, name, rank, size, _own_address(), interface, limit, silence, store)
    except ImportError as error:
        raise DistBackendError(
            f"the ranks of the group {name!r} are on {hosts} hosts, which needs the Gloo library (install libgloo0): {error}"
        ) from None


def _own_address():
    """This host's address, as a host that reaches the master sees it."""
    import socket

    master = os.environ.get("MASTER_ADDR", "localhost")
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:  # connecting sends nothing
                probe.connect((master, int(os.environ.get("MASTER_PORT", 1)) or 1))
                return probe.getsockname()[0]
        except OSError:
            continue
    return "127.0.0.1"
