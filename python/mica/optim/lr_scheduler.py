"""Schedules of learning rates."""

from mica.optim._lr_base import (  # noqa: F401 - names that programs import from here
    EPOCH_DEPRECATION_WARNING,
    LRScheduler,
    _enable_get_lr_call,
    _format_param,
    _initial_mode,
    _LRScheduler,
    _param_groups_val_list,
    _update_param_group_val,
    _warn_get_lr_called_within_step,
)
from mica.optim._lr_cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from mica.optim._lr_factors import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    SequentialLR,
    StepLR,
)
from mica.optim._lr_plateau import ReduceLROnPlateau
from mica.optim.optimizer import Optimizer  # noqa: F401

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

for _name in (*__all__, "_LRScheduler"):
    globals()[_name].__module__ = __name__
