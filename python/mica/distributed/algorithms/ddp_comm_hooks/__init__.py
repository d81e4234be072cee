"""Communication hooks of DistributedDataParallel, by name."""

import enum
import functools

from mica.distributed.algorithms.ddp_comm_hooks import debugging_hooks as debugging
from mica.distributed.algorithms.ddp_comm_hooks import default_hooks as default
from mica.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_localSGD
from mica.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


def _register(hook, model, state):
    model.register_comm_hook(state, hook)


def _register_power(hook, rank, model, state):
    state.matrix_approximation_rank = rank
    model.register_comm_hook(state, hook)


class DDPCommHookType(enum.Enum):
    """The hooks that register_ddp_comm_hook knows."""

    ALLREDUCE = functools.partial(_register, default.allreduce_hook)
    FP16_COMPRESS = functools.partial(_register, default.fp16_compress_hook)
    BF16_COMPRESS = functools.partial(_register, default.bf16_compress_hook)
    POWER_SGD = functools.partial(_register_power, powerSGD.powerSGD_hook, 1)
    POWER_SGD_RANK2 = functools.partial(_register_power, powerSGD.powerSGD_hook, 2)
    BATCHED_POWER_SGD = functools.partial(_register_power, powerSGD.batched_powerSGD_hook, 1)
    BATCHED_POWER_SGD_RANK2 = functools.partial(_register_power, powerSGD.batched_powerSGD_hook, 2)
    POST_LOCAL_SGD = functools.partial(_register, post_localSGD.post_localSGD_hook)
    NOOP = functools.partial(_register, debugging.noop_hook)


def register_ddp_comm_hook(comm_hook_type, model, state=None):
    """Register the hook of this type on the model."""
    comm_hook_type.value(model=model, state=state)
