"""What the answer of a class with a __torch_dispatch__ means for the tensors that the program holds.

The class computes with the tensors that its own are made of. The program's tensors are theirs to autograd: a change is
counted, so that a saved tensor that was changed is noticed, and a view lies in the tensor that it is a view of.
"""

import functools

import mica
from mica import _C


@functools.cache
def _written(operator):
    """Where an operator's arguments are that it changes: [(place, name)]."""
    arguments = getattr(operator, "_schema", None)
    arguments = arguments.arguments if arguments is not None else ()
    return [(i, a.name) for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]


def _changed(operator, args, kwargs, is_of_class):
    """The tensors of a class that a call changes."""
    for place, name in _written(operator):
        value = args[place] if place < len(args) else kwargs.get(name)
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, _C.TensorBase) and is_of_class(type(each)) and not each.is_inference():
                yield each


@functools.cache
def _returns_first(operator):
    """Whether an operator returns its first argument, which it changes."""
    schema = getattr(operator, "_schema", None)
    if schema is None or len(schema.returns) != 1 or not _written(operator) or _written(operator)[0][0] != 0:
        return False
    alias = schema.returns[0].alias_info
    return alias is not None and alias.is_write


def answer_of(operator, args, kwargs, ask, is_of_class, marks_views):
    """What ask() says about the call of an operator, after which the tensors that it changes have a new version and
    the views that it makes lie in what they are views of. `marks_views`: nobody else says of what they are views."""
    counted = [(each, each._version) for each in _changed(operator, args, kwargs, is_of_class)]
    answer = ask()
    for each, version in counted:
        if each._version == version:
            _C._increment_version(each)
    if _returns_first(operator) and args and isinstance(args[0], _C.TensorBase) and isinstance(answer, _C.TensorBase):
        return args[0]  # whatever the class has made of what it changed
    if getattr(operator, "is_view", False) and args and isinstance(args[0], _C.TensorBase):
        _place_views(answer, operator, args, kwargs, is_of_class, marks_views)
    return answer


def place_alias(alias, tensor):
    """Let a tensor without history that has the elements of another one count its changes with it."""
    if alias is not tensor and alias.shape == tensor.shape and alias.dtype == tensor.dtype and alias._base is None:
        _C._lie_in(alias, tensor)


def _place_views(answer, operator, args, kwargs, is_of_class, marks_views):
    made = answer if isinstance(answer, (list, tuple)) else (answer,)
    source = args[0]
    if not all(isinstance(each, _C.TensorBase) and is_of_class(type(each)) for each in (source, *made)):
        return
    if operator is mica.ops.aten.detach.default:
        return place_alias(answer, source)
    before = _C._set_dispatch_aside(True)
    try:
        with mica.no_grad():
            places = operator(*args, **kwargs)
    except RuntimeError:  # the class can view what its sizes and strides alone do not allow
        return
    finally:
        _C._set_dispatch_aside(before)
    places = places if isinstance(places, (list, tuple)) else (places,)
    several = isinstance(answer, (list, tuple))
    for each, place in zip(made, places, strict=False):
        if each is source or each.shape != place.shape or each.dtype != place.dtype or each._base is not None:
            continue
        if _C._lie_in(each, place) and marks_views:
            _C._mark_view(each, source, several)
