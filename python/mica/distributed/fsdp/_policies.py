"""How a sharded module computes and where its parts lie."""

import dataclasses

__all__ = ["CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclasses.dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of parameters in forward and backward, of reductions of gradients, and of outputs; None: as they are."""

    param_dtype: object = None
    reduce_dtype: object = None
    output_dtype: object = None
    cast_forward_inputs: bool = True


@dataclasses.dataclass
class OffloadPolicy:
    """Sharded parameters stay on the module's device."""


@dataclasses.dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Sharded parameters, gradients and the optimizer's state live in the memory of the CPU."""

    pin_memory: bool = True
