"""A call that a rule looks at: sizes and values of its arguments, and the dimension of the grid."""

import mica
from mica.distributed.tensor.placement_types import Replicate

REPLICATE = Replicate()


class Call:
    """One call of an operator. A rule may also say how the parts are computed."""

    def __init__(self, func, args, kwargs, specs, metas, needs_gradient):
        self.func, self.specs, self.metas = func, specs, metas
        schema = func._schema
        self.name = schema.name.partition("::")[2]
        self.in_place = self.name.endswith("_") and not self.name.endswith("__")
        self.shapes = [tuple(spec.shape) for spec in specs]
        self.bytes = [_numel(spec.shape) * spec.tensor_meta.dtype.itemsize for spec in specs]
        self.outputs = len(metas)
        self.needs_gradient = needs_gradient
        self.values = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
        self.values.update({a.name: value for a, value in zip(schema.arguments, args, strict=False)})
        self.values.update(kwargs)
        self.size_argument = None  # the argument with the sizes of the result
        self.replacement = None  # plan -> function of the parts that runs in place of the operator
        self.random = self.view = False
        self.differentiable = True

    def at(self, mesh, dim):
        self.mesh, self.dim, self.count = mesh, dim, mesh.size(dim)
        self.now = [spec.placements[dim] for spec in self.specs]

    def same(self, placement):
        """The option in which everything lies in the same way."""
        return (placement,) * self.outputs, (placement,) * len(self.specs)

    def replicated(self):
        return self.same(REPLICATE)

    def place(self, name):
        """Where among the call's tensors an argument is; None if it is not one."""
        place = 0
        for argument in self.func._schema.arguments:
            value = self.values.get(argument.name)
            tensors = _tensors(value)
            if argument.name == name:
                return place if tensors else None
            place += tensors
        return None

    @staticmethod
    def functional(plan, args, kwargs, parts):
        """An operator in place, computed out of place."""
        func = plan.call.func
        packet = getattr(mica.ops.aten, plan.call.name[:-1], None)
        overload = func._schema.overload_name or "default"
        from mica.distributed.tensor._utils import refilled

        args, kwargs = refilled(args, kwargs, parts)
        if plan.call.name == "copy_":
            source = args[1].to(args[0].dtype)
            return source.expand(args[0].shape) + 0 if source.shape != args[0].shape else source.clone()
        if packet is None or overload not in [o or "default" for o in packet.overloads()]:
            raise NotImplementedError(f"{func}: has no form out of place, which its gradient is computed by")
        return getattr(packet, overload)(*args, **kwargs)


def _tensors(value):
    if isinstance(value, mica._C.TensorBase):
        return 1
    return sum(map(_tensors, value)) if isinstance(value, (list, tuple)) else 0


def _numel(shape):
    total = 1
    for each in shape:
        total *= each
    return total


def one_by_one(func, args, kwargs):
    """An operator over lists of tensors, as operators over their elements."""
    name = func._schema.name.partition("::")[2].removeprefix("_foreach_")
    lists = [a for a in args if isinstance(a, (list, tuple)) and a]
    count = len(args[0])
    made = []
    for i in range(count):
        each = [a[i] if isinstance(a, (list, tuple)) and len(a) == count and a in lists else a for a in args]
        method = getattr(mica.Tensor, name, None)
        if name == "norm":
            result = mica.linalg.vector_norm(each[0], *each[1:], **kwargs)
        elif name in ("copy_", "zero_") or method is not None:
            result = getattr(each[0], name)(*each[1:], **kwargs)
        else:
            raise NotImplementedError(f"Operator {func} does not have a sharding strategy registered.")
        made.append(result)
    return None if name.endswith("_") else made
