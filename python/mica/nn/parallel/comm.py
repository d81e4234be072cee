"""Copies between the GPUs of one process, by the name that torch's parallel modules have for them."""

from mica.cuda.comm import (  # noqa: F401
    broadcast,
    broadcast_coalesced,
    gather,
    reduce_add,
    reduce_add_coalesced,
    scatter,
)
