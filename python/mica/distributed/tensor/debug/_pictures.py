"""Pictures of how a tensor lies on the ranks."""

import importlib.util
import itertools

from mica.distributed.tensor._utils import _compute_local_shape_and_global_offset


def _named(kind, places):
    return [f"{kind} {first}-{last}" for first, last in places]


def visualize_sharding(dtensor, header="", use_rich=False):
    """Print which ranks have which rows and columns of a `DTensor` of one or two dimensions, on the first rank of its mesh.

    The package tabulate draws the table. With `use_rich` torch draws it with rich and matplotlib where both are
    installed, which is refused here; `header` would be its title.
    """
    if dtensor.numel() == 0:
        return
    if dtensor.dim() not in (1, 2):
        raise RuntimeError("visualize sharding supports only 1D or 2D DTensor")
    mesh = dtensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None or any(coordinate):
        return
    found = {name: importlib.util.find_spec(name) is not None for name in ("rich", "matplotlib", "tabulate")}
    if use_rich and found["rich"] and found["matplotlib"]:
        raise NotImplementedError(
            "visualize_sharding(use_rich=True) is not in Mica: leave it out, and install tabulate"
        )
    if not found["tabulate"]:
        raise ValueError("`visualize_sharding` requires either `rich` or `tabulate`.")
    from tabulate import tabulate

    cells = {}
    for place in itertools.product(*map(range, mesh.shape)):
        sizes, begin = _compute_local_shape_and_global_offset(dtensor.shape, mesh.shape, place, dtensor.placements)
        box = [(first, first + many - 1) for first, many in zip(begin, sizes, strict=True)]
        row, column = (*box, (0, 0))[:2]
        cells.setdefault((row, column), []).append(str(mesh.mesh[place].item()))
    rows, columns = (sorted({pair[axis] for pair in cells}) for axis in (0, 1))
    table = [[f"{mesh.device_type}:{','.join(cells.get((row, column), []))}" for column in columns] for row in rows]
    print(tabulate(table, headers=_named("Col", columns), showindex=_named("Row", rows)))
