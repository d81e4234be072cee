"""A debugger on one rank, for which the others wait."""

import pdb
import sys
from collections import Counter
from datetime import timedelta

_passed = Counter()  # calls by their lines


class _Debugger(pdb.Pdb):
    """Reads from the terminal, also in processes whose standard input a parent has taken away."""

    def interaction(self, *args, **options):
        before = sys.stdin
        try:
            with open("/dev/stdin") as sys.stdin:
                super().interaction(*args, **options)
        finally:
            sys.stdin = before


def breakpoint(rank=0, skip=0, timeout_s=3600):
    """Stop on one rank, after `skip` calls at this line. The other ranks wait in a barrier until it goes on.

    All groups wait for `timeout_s` seconds from now on, so that there is time to look around.
    """
    from mica.distributed import barrier, get_rank
    from mica.distributed.world import _set_pg_timeout, _world

    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno
    _passed[place] += 1
    if _passed[place] <= skip:
        return
    if timeout_s is not None:
        for group in list(_world.pg_map):
            _set_pg_timeout(timedelta(seconds=timeout_s), group)
    if get_rank() == rank:
        debugger = _Debugger()
        debugger.message(
            f"\n!!! ATTENTION !!!\n\nType 'up' to get to the frame that called dist.breakpoint(rank={rank})\n"
        )
        debugger.set_trace()
    barrier()
