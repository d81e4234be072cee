"""Which handler starts a process."""

from mica.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

__all__ = ["get_subprocess_handler"]


def get_subprocess_handler(entrypoint, args, env, stdout, stderr, local_rank_id, numa_options=None):
    return SubprocessHandler(entrypoint, args, env, stdout, stderr, local_rank_id, numa_options)
