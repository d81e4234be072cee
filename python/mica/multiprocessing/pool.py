"""Pools of processes whose results may be tensors."""

import gc
import multiprocessing.pool

__all__ = ["Pool", "clean_worker"]


def clean_worker(*args, **kwargs):
    """A worker that frees all tensors before it ends, also those in cycles."""
    multiprocessing.pool.worker(*args, **kwargs)
    gc.collect()


class Pool(multiprocessing.pool.Pool):
    """Python's pool, with workers that let go of their tensors."""

    @staticmethod
    def Process(context, *args, **kwargs):
        if kwargs.get("target") is multiprocessing.pool.worker:
            kwargs["target"] = clean_worker
        return multiprocessing.pool.Pool.Process(context, *args, **kwargs)
