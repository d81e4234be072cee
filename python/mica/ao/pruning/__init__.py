"""Masks over the weights of a model, renewed while it is trained, and schedules of how much they leave."""

from mica.ao.pruning._mappings import get_dynamic_sparse_quantized_mapping, get_static_sparse_quantized_mapping
from mica.ao.pruning.scheduler.base_scheduler import BaseScheduler
from mica.ao.pruning.scheduler.cubic_scheduler import CubicSL
from mica.ao.pruning.scheduler.lambda_scheduler import LambdaSL
from mica.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier
from mica.ao.pruning.sparsifier.nearly_diagonal_sparsifier import NearlyDiagonalSparsifier
from mica.ao.pruning.sparsifier.utils import (
    FakeSparsity,
    fqn_to_module,
    get_arg_info_from_tensor_fqn,
    module_to_fqn,
)
from mica.ao.pruning.sparsifier.weight_norm_sparsifier import WeightNormSparsifier

__all__ = [
    "BaseScheduler",
    "BaseSparsifier",
    "CubicSL",
    "FakeSparsity",
    "LambdaSL",
    "NearlyDiagonalSparsifier",
    "WeightNormSparsifier",
    "fqn_to_module",
    "get_arg_info_from_tensor_fqn",
    "get_dynamic_sparse_quantized_mapping",
    "get_static_sparse_quantized_mapping",
    "module_to_fqn",
]
