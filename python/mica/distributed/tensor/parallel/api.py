"""parallelize_module."""

import warnings
from fnmatch import fnmatch

from mica.distributed.device_mesh import _mesh_resources
from mica.distributed.tensor.parallel.style import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(module, device_mesh=None, parallelize_plan=None, *, src_data_rank=0):
    """Spread a module as a style says, or its children as a dictionary from their names, which may have *, to styles."""
    mesh = device_mesh or _mesh_resources.get_current_mesh()
    if mesh.ndim != 1:
        raise ValueError(
            f"Tensor Parallel only accepts a 1D DeviceMesh, but found {mesh.ndim}D! If you have a 2-D or N-D device_mesh, "
            'consider passing in device_mesh["tp"]'
        )
    if parallelize_plan is None:
        warnings.warn(
            "No parallelize_plan is provided and auto-parallel is not supported at the moment, so this parallelize_module "
            "call will do nothing.",
            stacklevel=2,
        )
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(
            f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!"
        )
    for path, style in parallelize_plan.items():
        if path == "":
            parallelize_module(module, mesh, style, src_data_rank=src_data_rank)
            continue
        first, *rest = path.split(".")
        found = [child for name, child in module.named_children() if fnmatch(name, first)]
        if not found:
            warnings.warn(
                f"Parallelize plan key '{path}' could not be resolved: no submodule matching token '{first}' in module "
                f"{module}, skipping this plan entry.",
                stacklevel=2,
            )
        for child in found:
            plan = {".".join(rest): style} if rest else style
            parallelize_module(child, mesh, plan, src_data_rank=src_data_rank)
    return module
