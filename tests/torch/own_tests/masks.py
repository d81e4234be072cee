"""What torch's tests of masked tensors ask for: the wheel's lists of operators, which it keeps beside its own rules, and comparisons."""

import ast

_LISTS = {"unary": "UNARY", "binary": "BINARY", "reductions": "REDUCE"}


def given(wheel):
    """The lists by the names below torch that tests know them under. `wheel` is the folder that holds the package torch."""
    import torch

    core = "masked.maskedtensor.core"
    found = {f"{core}._masks_match": _masks_match, f"{core}._tensors_match": _tensors_match}
    for module, kind in _LISTS.items():
        source = (wheel / "torch" / "masked" / "maskedtensor" / f"{module}.py").read_text()
        for node in ast.parse(source).body:
            name = node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else ""
            if name not in (f"{kind}_NAMES", f"INPLACE_{kind}_NAMES"):
                continue
            names = [each for each in ast.literal_eval(node.value) if isinstance(each, str)] if _plain(node) else []
            names = names or [each + "_" for each in found[f"masked.maskedtensor.{module}.{kind}_NAMES"]]
            functions = [getattr(torch.ops.aten, each) for each in names if hasattr(torch.ops.aten, each)]
            found[f"masked.maskedtensor.{module}.{name}"] = names
            found[f"masked.maskedtensor.{module}.NATIVE_{name.removesuffix('_NAMES')}_FNS"] = functions
    return found


def _plain(node):
    try:
        ast.literal_eval(node.value)
    except ValueError:
        return False
    return True


def _dense(x):
    return x if str(x.layout) == "torch.strided" else x.to_dense()


def _masks_match(a, b):
    """Whether two masked tensors have one mask; what has none matches."""
    masks = [x.get_mask() for x in (a, b) if hasattr(x, "get_mask")]
    return len(masks) < 2 or (masks[0].shape == masks[1].shape and bool((_dense(masks[0]) == _dense(masks[1])).all()))


def _tensors_match(a, b, exact=True, rtol=1e-05, atol=1e-08):
    """Whether two tensors of one layout hold the same numbers, or nearly the same."""
    if a.layout != b.layout:
        raise ValueError(f"the layouts differ: {a.layout} and {b.layout}")
    a, b = _dense(a), _dense(b)
    if exact:
        return a.dim() == b.dim() and bool((a == b).all())
    import torch

    return torch.allclose(a, b.to(a.dtype), rtol=rtol, atol=atol, equal_nan=True)
