"""Whether dynamic_shapes are nested as the inputs are, in torch's words."""

from mica import _C

__all__ = ["check_structure"]

_MISMATCH = "Detected mismatch between the structure of `inputs` and `dynamic_shapes`: "
_DIMENSIONS = "a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC"


def _refused(text):
    from mica._dynamo.exc import UserError, UserErrorType

    return UserError(UserErrorType.INVALID_INPUT, text)


def check_structure(shapes, values, kinds):
    """Raise UserError unless the shapes, whose sizes are of some kinds, fit the named values."""
    if isinstance(shapes, dict):
        if set(shapes) != set(values):
            raise _refused(
                "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names "
                f"{list(values)} of `inputs`, but here they are {list(shapes)}. Alternatively, you could also ignore arg "
                "names entirely and specify `dynamic_shapes` as a list/tuple matching `inputs`."
            )
        for name, value in values.items():
            _check(value, shapes[name], f"[{name!r}]", kinds)
        return
    if not isinstance(shapes, (list, tuple)):
        raise _refused(f"dynamic_shapes are a dict, a list or a tuple, but got {type(shapes).__name__}")
    if len(shapes) != len(values):
        raise _refused(
            f"{_MISMATCH}`inputs` has {len(values)} elements, but `dynamic_shapes` has {len(shapes)} elements"
        )
    for i, (shape, value) in enumerate(zip(shapes, values.values(), strict=True)):
        _check(value, shape, f"[{i}]", kinds)


def _check(value, shape, path, kinds):
    if shape is None:
        return
    if isinstance(value, _C.TensorBase):
        _check_tensor(value, shape, path, kinds)
    elif isinstance(value, (list, tuple)):
        if not isinstance(shape, (list, tuple)):
            raise _refused(_types(value, shape, path))
        if len(value) != len(shape):
            raise _refused(
                f"{_MISMATCH}`inputs{path}` has {len(value)} elements, but `dynamic_shapes{path}` has {len(shape)} elements"
            )
        for i, (each, its) in enumerate(zip(value, shape, strict=True)):
            _check(each, its, f"{path}[{i}]", kinds)
    elif isinstance(value, dict):
        if not isinstance(shape, dict):
            raise _refused(_types(value, shape, path))
        if set(value) != set(shape):
            raise _refused(
                f"{_MISMATCH}`inputs{path}` has keys {list(value)}, but `dynamic_shapes{path}` has keys {list(shape)}"
            )
        for key, each in value.items():
            _check(each, shape[key], f"{path}[{key!r}]", kinds)
    elif (value is None or isinstance(value, (bool, float, str))) and not isinstance(shape, kinds):
        raise _refused(
            f"Cannot associate shape {shape} specified at `dynamic_shapes{path}` to non-tensor type {type(value)} at "
            f"`inputs{path}` (expected None)"
        )


def _types(value, shape, path):
    return (
        f"{_MISMATCH}`inputs{path}` is a {type(value)}, but `dynamic_shapes{path}` is a {type(shape)}. Arguments that a "
        "function takes as *args are one tuple, and so are their sizes: (({0: n},),)."
    )


def _check_tensor(value, shape, path, kinds):
    if isinstance(shape, dict):
        for i, dim in shape.items():
            if not isinstance(i, int) or not -value.dim() <= i < value.dim():
                raise _refused(
                    f"Unexpected index {i!r} in input tensor shape {shape} specified at `dynamic_shapes{path}`: the tensor "
                    f"has {value.dim()} dimensions"
                )
            if dim is not None and not isinstance(dim, (int, *kinds)):
                raise _refused(
                    f"Unexpected dimension mapped to index {i} in input tensor shape {shape} specified at "
                    f"`dynamic_shapes{path}` (expected None, an int, {_DIMENSIONS},  but got {dim!r} instead)"
                )
    elif isinstance(shape, (list, tuple)):
        if len(shape) != value.dim():
            raise _refused(
                f"Expected dynamic shape spec {shape} specified at `dynamic_shapes{path}` to have the same length as the "
                f"actual tensor shape {value.shape} (expected {value.dim()}, but got {len(shape)} instead)"
            )
        for i, dim in enumerate(shape):
            if dim is not None and not isinstance(dim, (int, *kinds)):
                raise _refused(
                    f"Unexpected dimension #{i} in input tensor shape {shape} specified at `dynamic_shapes{path}` "
                    f"(expected None, an int, {_DIMENSIONS}, but got {dim!r} instead)"
                )
    else:
        raise _refused(
            f"Unexpected input tensor shape {shape} specified at `dynamic_shapes{path}` (expected either a list/tuple of "
            f"dimensions, or a dict mapping indices to dimensions, where each dimension is an int, {_DIMENSIONS})"
        )
