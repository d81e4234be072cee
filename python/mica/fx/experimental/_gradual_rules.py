"""How operations and modules make types of types: the rules by which a graph's types are checked."""

import math
import operator

import mica
from mica.fx.experimental._gradual_sizes import (
    broadcast_types,
    calculate_out_dimension,
    expand_to_tensor_dim,
    get_greatest_upper_bound,
)
from mica.fx.node import Node
from mica.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise

__all__ = [
    "adaptiveavgpool2d_check", "adaptiveavgpool2d_inference_rule", "add_inference_rule", "argument",
    "bn2d_inference_rule", "conv2d_inference_rule", "flatten_check", "flatten_inference_rule", "flattened_dims",
    "get_attr_inference_rule", "linear_check", "linear_inference_rule", "maxpool2d_check", "maxpool2d_inference_rule",
    "register_inference_rule", "relu_inference_rule", "reshape_inference_rule", "transpose_inference_rule", "type_of",
]  # fmt: skip

_INFERENCE_RULES = {}  # by the function, or the class of the module, that a node calls


def register_inference_rule(call_target):
    """Let the decorated function, of a node and where it calls a module of that too, give such nodes their types."""

    def register(rule):
        if call_target in _INFERENCE_RULES:
            raise RuntimeError(f"Inference rule already registered for {call_target}!")
        _INFERENCE_RULES[call_target] = rule
        return rule

    return register


def argument(n, position, name, default=None):
    """An argument of a node, by its position or its name."""
    return n.args[position] if len(n.args) > position else n.kwargs.get(name, default)


def type_of(value):
    """The type of an argument: that of a node, or the class of a number."""
    return value.type if isinstance(value, Node) else type(value)


@register_inference_rule(mica.add)
@register_inference_rule(operator.add)
def add_inference_rule(n):
    """Sums: of a tensor and a number, or of two tensors that broadcast. What the less precise of both says is kept."""
    left, right = argument(n, 0, "input"), argument(n, 1, "other")
    t1, t2 = type_of(left), type_of(right)
    for number, tensor in ((t1, t2), (t2, t1)):
        if number in (int, float, bool, complex) and isinstance(tensor, TensorType):
            n.type = tensor
            return n.type
    first, second = broadcast_types(t1, t2)
    n.meta["broadcast"] = first != t1 or second != t2
    if n.meta["broadcast"]:
        n.meta[str(left)], n.meta[str(right)] = first, second
    if not is_consistent(first, second):
        raise TypeError(f"Cannot add arguments {left} ({t1}) and {right} ({t2}) in node {n}. Types should match ")
    n.type = second if is_more_precise(first, second) else first
    return n.type


@register_inference_rule(getattr)
def get_attr_inference_rule(n, traced):
    """The shape of a tensor. It has no type of its own."""
    if n.args[1] != "shape":
        raise TypeError(f"Cannot say the type of the attribute {n.args[1]!r} in node {n}: only that of shape is known")
    n.type = Dyn
    return n.type


@register_inference_rule(mica.transpose)
def transpose_inference_rule(n):
    """Two dimensions change places, if there are such."""
    t = type_of(argument(n, 0, "input"))
    dim1, dim2 = argument(n, 1, "dim0"), argument(n, 2, "dim1")
    if t == Dyn:
        n.type = Dyn
        return n.type
    if not isinstance(t, TensorType) or not all(-len(t.dims) <= dim < len(t.dims) for dim in (dim1, dim2)):
        raise TypeError(f"Cannot transpose {dim1} and {dim2} in type {t} for node {n}")
    sizes = list(t.dims)
    sizes[dim1], sizes[dim2] = sizes[dim2], sizes[dim1]
    n.type = get_greatest_upper_bound(n.type, TensorType(sizes))
    return n.type


@register_inference_rule(mica.reshape)
def reshape_inference_rule(n):
    """A type of the same number of elements. Where sizes are unknown on both sides, what is known must divide the other."""
    t = type_of(argument(n, 0, "input"))
    shape = argument(n, 1, "shape")
    made = TensorType([Dyn if size == -1 else size for size in shape])
    if t != Dyn and not (isinstance(t, TensorType) and _can_have_equally_many(t.dims, made.dims)):
        raise TypeError(f"Cannot reshape in node {n} from {t} to {made}")
    n.type = made
    return n.type


def _can_have_equally_many(old, new):
    """Whether tensors of such sizes may have equally many elements."""
    before, after = (math.prod(size for size in sizes if size != Dyn) for sizes in (old, new))
    if Dyn not in old and Dyn not in new:
        return before == after
    if before == 0 or after == 0:
        return before == after or (Dyn in old if after == 0 else Dyn in new)
    if Dyn not in old:
        return before % after == 0
    if Dyn not in new:
        return after % before == 0
    return before % after == 0 or after % before == 0


@register_inference_rule(mica.nn.BatchNorm2d)
def bn2d_inference_rule(n, module_instance):
    """Four dimensions, of which the second is the number of features. Input and output say together what both are."""
    source = argument(n, 0, "input")
    arg_type, own = expand_to_tensor_dim(source.type, 4), expand_to_tensor_dim(n.type, 4)
    features = module_instance.num_features
    fits = is_consistent(arg_type.dims[1], features) and is_consistent(own.dims[1], features)
    if not fits or not is_consistent(arg_type, own):
        raise TypeError(f"Cannot apply {module_instance} with input type {arg_type} and existing type {own} on {n}")
    source.type = arg_type
    n.type = get_greatest_upper_bound(arg_type, own)
    return n.type


@register_inference_rule(mica.nn.Conv2d)
def conv2d_inference_rule(n, module_instance):
    """Four dimensions, of which the second is the number of channels; the last two follow from the module's options."""
    source = argument(n, 0, "input")
    arg_type, own = expand_to_tensor_dim(source.type, 4), expand_to_tensor_dim(n.type, 4)
    if not is_consistent(arg_type.dims[1], module_instance.in_channels):
        raise TypeError(f"Cannot apply {module_instance} with input type {arg_type} and existing type {n.type} on {n}")
    batch, _, *sides = arg_type.dims
    made = [calculate_out_dimension(side, module_instance, index) for index, side in enumerate(sides)]
    source.type = arg_type
    n.type = get_greatest_upper_bound(TensorType((batch, module_instance.out_channels, *made)), own)
    return n.type


def maxpool2d_check(typ, module_instance):
    """The type of what a pool makes of three or four dimensions: the last two follow from its options."""
    if len(typ.dims) not in (3, 4):
        raise TypeError(f"Wrong size {typ} for {module_instance}")
    *kept, height, width = typ.dims
    made = [calculate_out_dimension(side, module_instance, index) for index, side in enumerate((height, width))]
    return TensorType((*kept, *made))


def linear_check(tensor_type, module_instance):
    """The type of what a linear layer makes of a type: the last dimension is that of its features."""
    if len(tensor_type.dims) < 2:
        raise TypeError(f"Type {tensor_type} must have rank 2 or more.")
    *kept, last = tensor_type.dims
    if not is_consistent(module_instance.in_features, last):
        raise TypeError(f"Inconsistent {module_instance.in_features} and {last} in {module_instance}")
    return TensorType((*kept, module_instance.out_features))


def adaptiveavgpool2d_check(tensor_type, module_instance):
    """The type of what an adaptive pool makes of three or four dimensions; where it keeps a size, that of the input."""
    if len(tensor_type.dims) not in (3, 4):
        raise TypeError(f"Tensor ranks must be 3 or 4. Got {tensor_type}")
    *kept, height, width = tensor_type.dims
    wanted = module_instance.output_size
    wanted = (wanted, wanted) if wanted is None or isinstance(wanted, int) else wanted
    made = [side if size is None else size for size, side in zip(wanted, (height, width), strict=True)]
    return TensorType((*kept, *made))


def flattened_dims(rank, start_dim, end_dim):
    """The first dimension that is flattened and the one behind the last, of a tensor of that rank."""
    return [dim + rank if dim < 0 else dim for dim in (start_dim, end_dim)]


def flatten_check(tensor_type, start_dim, end_dim):
    """The type in which these dimensions are one."""
    first, last = flattened_dims(len(tensor_type.dims), start_dim, end_dim)
    if not 0 <= first <= last < len(tensor_type.dims):
        raise TypeError(f"Incompatible dimensions {start_dim}, {end_dim} in type {tensor_type}")
    sizes = list(tensor_type.dims)
    middle = sizes[first : last + 1]
    return TensorType((*sizes[:first], Dyn if Dyn in middle else math.prod(middle), *sizes[last + 1 :]))


def _infer(n, made_of):
    """Give a node the type that its operation makes of the input's, and what its own annotation says besides.

    Where only the annotation is known, the input has as many dimensions.
    """
    source = argument(n, 0, "input")
    known = source.type
    if known == Dyn and isinstance(n.type, TensorType):
        known = expand_to_tensor_dim(known, len(n.type.dims))
    if isinstance(known, TensorType):
        n.type = get_greatest_upper_bound(made_of(known), n.type)
        source.type = known
    return n.type


@register_inference_rule(mica.nn.ReLU)
def relu_inference_rule(n, module_instance):
    """All sizes stay."""
    return _infer(n, lambda known: known)


@register_inference_rule(mica.nn.MaxPool2d)
def maxpool2d_inference_rule(n, module_instance):
    """The last two sizes are those that the pool makes."""
    return _infer(n, lambda known: maxpool2d_check(known, module_instance))


@register_inference_rule(mica.nn.Linear)
def linear_inference_rule(n, module_instance):
    """The last size is the number of features that the layer makes."""
    return _infer(n, lambda known: linear_check(known, module_instance))


@register_inference_rule(mica.nn.AdaptiveAvgPool2d)
def adaptiveavgpool2d_inference_rule(n, module_instance):
    """The last two sizes are those that the pool is asked for."""
    return _infer(n, lambda known: adaptiveavgpool2d_check(known, module_instance))


@register_inference_rule(mica.flatten)
def flatten_inference_rule(n):
    """The flattened sizes are one, their product."""
    start_dim, end_dim = argument(n, 1, "start_dim", 0), argument(n, 2, "end_dim", -1)
    return _infer(n, lambda known: flatten_check(known, start_dim, end_dim))
