"""What a function does to the tensors that it is given, and which memory its results lie in.

A graph without changes in place has neither changed inputs nor views as results. So the function is run once on copies
and watched. The compiled function then does to its inputs what the function did, and makes views of them anew.
"""

import mica
from mica import _C
from mica.autograd.function import BackwardCFunction
from mica.utils._python_dispatch import TorchDispatchMode

__all__ = ["InputFacts", "OutputFacts", "facts_of", "memory_of"]

# Operators that give a tensor other sizes or another memory, and leave the numbers in it as they are.
_RESHAPES = frozenset(
    [
        "as_strided_",
        "detach_",
        "resize_",
        "set_",
        "squeeze_",
        "swapaxes_",
        "swapdims_",
        "t_",
        "transpose_",
        "unsqueeze_",
    ]
)


def memory_of(value):
    """What tells whether two tensors share memory; None for those that have none of their own."""
    if not isinstance(value, _C.TensorBase) or value.layout is not mica.strided:
        return None
    if hasattr(value, "__tensor_flatten__"):
        names = value.__tensor_flatten__()[0]
        return memory_of(getattr(value, names[0])) if names else None
    return value.untyped_storage()._cdata if value.numel() else None


def _layout(tensor):
    return (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) if tensor.layout is mica.strided else None


class InputFacts:
    """What a function does to an input.

    Attributes:
        changed: its numbers are changed
        reshaped: its sizes or strides are changed
        moved: it lies in other memory afterwards
        hidden: autograd did not see the change (it was under no_grad, or by a detached tensor)
        requires_grad: after the call
        in_graph: the change is made by the graph
    """

    def __init__(self, value):
        self.changed = self.reshaped = self.moved = self.hidden = self.in_graph = False
        self.requires_grad = isinstance(value, _C.TensorBase) and value.requires_grad
        self.is_subclass = hasattr(value, "__tensor_flatten__")

    @property
    def outside(self):
        """Whether the new value is a result of the graph, which is written to the input behind it."""
        return (self.changed or self.reshaped or self.moved) and not self.in_graph

    @property
    def differentiable(self):
        """Whether a gradient comes for the new value."""
        return self.outside and self.changed and self.requires_grad and not self.hidden


class OutputFacts:
    """What a result of a function is.

    Attributes:
        kind: "value"; "hidden view", a view that nobody else sees; "input", an input itself; or what it is a view of:
            "of input", "of base" (a further result of the graph), "of output"
        source: the number of that input, base or output
        is_whole: whether it is no view, although a graph without changes in place may return one (of what was `t_()`)
        requires_grad, differentiable: differ for a view that was made under no_grad
        layout: sizes, strides and the place within its source, in bytes
        dtype, is_conj, is_neg: how the memory is read
        steps: the operators that make it from its source
    """

    def __init__(self, value):
        self.kind, self.source, self.steps = "value", None, None
        is_tensor = isinstance(value, _C.TensorBase)
        self.is_whole = is_tensor and value._base is None
        self.requires_grad = is_tensor and value.requires_grad
        self.differentiable = self.requires_grad and (value._base is None or value.grad_fn is not None)
        self.layout = _layout(value) if is_tensor else None
        self.dtype = value.dtype if is_tensor else None
        self.is_conj, self.is_neg = (value.is_conj(), value.is_neg()) if is_tensor else (False, False)

    @property
    def is_alias(self):
        return self.kind in ("input", "of input", "of base", "of output")

    @property
    def is_own(self):
        """Whether nobody sees what it is a view of."""
        return self.kind == "hidden view" or (self.kind == "value" and self.is_whole)

    @property
    def has_tangent(self):
        return self.differentiable and not self.is_alias

    def made_from(self, source):
        """The view, of this source."""
        if self.kind == "input":
            return source
        found = self._replayed(source) if self.steps is not None else None
        if found is None:
            found = self._read(source)
        if found.requires_grad and not self.requires_grad:
            return found.detach()
        return found if found.requires_grad == self.requires_grad else found.requires_grad_()

    def _read(self, source):
        """The view by its sizes and strides."""
        size, stride, place = self.layout
        offset = source.storage_offset() + place // source.itemsize
        if (self.dtype, self.is_conj, self.is_neg) == (source.dtype, source.is_conj(), source.is_neg()):
            return source.as_strided(size, stride, offset)
        offset = (source.storage_offset() * source.itemsize + place) // self.dtype.itemsize
        found = mica.empty(0, dtype=self.dtype, device=source.device)
        found.set_(source.untyped_storage(), offset, size, stride)
        found = found.conj() if self.is_conj else found
        return found._neg_view() if self.is_neg else found

    def steps_give(self, value, source):
        """Whether the steps make the view of its source."""
        try:
            with mica.no_grad():
                found = self._replayed(source)
        except (RuntimeError, IndexError):  # for other numbers of dimensions
            return False
        return found is not None and _layout(found) == _layout(value)

    def _replayed(self, source):
        found = source.view_as(source) if not self.steps else source
        for operation, args, kwargs, item in self.steps:
            found = operation(found, *args, **kwargs)
            found = found if item is None else found[item]
        return found if tuple(found.shape) == self.layout[0] else None


class _Watch(TorchDispatchMode):
    """Notes which memory operators write to, and what views are made of."""

    def __init__(self):
        super().__init__()
        self.written, self.reshaped, self.moved = set(), set(), set()
        self.views = {}
        self._kept = []  # so that no two tensors have one id

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema = function._schema
        for i, argument in enumerate(schema.arguments) if schema.is_mutable else ():
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._note(function, args[i] if i < len(args) else kwargs.get(argument.name))
        if (
            function is mica.ops.aten.native_batch_norm.default and args[5]
        ):  # its schema does not say that it writes these
            self._note(function, list(args[3:5]))
        made = function(*args, **kwargs)
        if function.is_view and args and isinstance(args[0], _C.TensorBase):
            items = enumerate(made) if isinstance(made, (list, tuple)) else [(None, made)]
            for item, each in items:
                self.views[id(each)] = (args[0], function, args[1:], kwargs, item)
            self._kept.append((args[0], made))
        return made

    def _note(self, function, value):
        if isinstance(value, (list, tuple)):
            for each in value:
                self._note(function, each)
        elif isinstance(value, _C.TensorBase):
            name = function._overloadpacket.__name__
            if name == "set_":
                self._kept.append(value)
                self.moved.add(id(value))
            elif (place := memory_of(value)) is not None:
                (self.reshaped if name in _RESHAPES else self.written).add(place)

    def is_piece(self, tensor):
        """Whether a view is one of several that one operator has made."""
        found = self.views.get(id(tensor))
        return found is not None and found[4] is not None

    def steps(self, view, source):
        """The operators that make a view of a tensor; None where they cannot be called again."""
        steps = []
        while view is not source:
            view, function, args, kwargs, item = self.views.get(id(view), (None,) * 5)
            plain = all(
                not isinstance(v, (_C.TensorBase, mica.SymInt)) for v in (*(args or ()), *(kwargs or {}).values())
            )
            if view is None or not plain or len(steps) > 100:
                return None
            if function._overloadpacket.__name__ not in ("detach", "alias"):
                steps.append((function, args, kwargs, item))
        return steps[::-1]


def _input_facts(value, before, watch, keeps_changes):
    facts = InputFacts(value)
    if before is None:
        return facts
    layout, place, version, history = before
    facts.moved = id(value) in watch.moved and memory_of(value) != place
    facts.reshaped = not facts.moved and _layout(value) != layout
    facts.reshaped = facts.reshaped or (facts.is_subclass and place in watch.reshaped)
    counted = version is not None and value._version != version
    counted = version is not None and value._version != version  # running statistics are changed by no such operator
    facts.changed = place in watch.written or (counted and place not in watch.reshaped and not facts.moved)
    facts.changed = facts.changed or (facts.moved and memory_of(value) in watch.written)
    facts.hidden = facts.changed and facts.requires_grad and value.grad_fn is history and not facts.reshaped
    plain = not facts.reshaped and not facts.moved
    facts.in_graph = keeps_changes and facts.changed and plain and (not facts.requires_grad or facts.hidden)
    return facts


def _output_facts(value, made, given, bases, watch):
    facts = OutputFacts(value)
    _find_kind(facts, value, made, given, bases, watch)
    if facts.is_alias and facts.layout is not None:
        source = {"of base": bases, "of output": made}.get(facts.kind, given)[facts.source]
        if facts.steps and not facts.steps_give(value, source):  # its sizes were changed in place
            facts.steps = None
        begin = source.storage_offset() * source.itemsize
        facts.layout = (*facts.layout[:2], facts.layout[2] * value.itemsize - begin)
    return facts


def _find_kind(facts, value, made, given, bases, watch):
    place = memory_of(value)
    if place is None:
        inputs = [i for i, each in enumerate(given) if each is value] if isinstance(value, _C.TensorBase) else []
        if inputs:
            facts.kind, facts.source = "input", inputs[0]
        return
    sharing = [each for each in made if memory_of(each) == place]
    whole = sum(not watch.is_piece(each) for each in sharing)
    inputs = [i for i, each in enumerate(given) if memory_of(each) == place]
    if inputs and isinstance(value.grad_fn, BackwardCFunction):
        return
    if inputs:
        same = [i for i in inputs if given[i] is value]
        if value.grad_fn is not None and whole == 0:
            return
        facts.kind, facts.source = ("input", same[0]) if same else ("of input", inputs[-1])
        if not same:
            facts.steps = watch.steps(value, given[facts.source])
    elif value._base is not None and value.requires_grad and value._base.requires_grad:
        base = value._base
        if whole <= 1 or len(sharing) == 1:
            facts.kind = "hidden view"
            return
        returned = [i for i, each in enumerate(made) if each is base]
        if returned:
            facts.kind, facts.source = "of output", returned[-1]
        else:
            known = [i for i, each in enumerate(bases) if each is base]
            if not known:
                bases.append(base)
            facts.kind, facts.source = "of base", known[0] if known else len(bases) - 1
        facts.steps = watch.steps(value, base)
    elif not value.requires_grad:
        alike = [i for i, each in enumerate(made)
                 if memory_of(each) == place and each.requires_grad and _layout(each) == _layout(value)]  # fmt: skip
        if alike:
            facts.kind, facts.source, facts.steps = "of output", alike[0], []


def facts_of(function, given, keeps_changes=False):
    """(facts of the inputs, facts of the outputs, the outputs, their bases) of a call on copies of the inputs.

    `keeps_changes` says that the graph is to write the inputs that it changes, where autograd need not see that.
    """
    before = []
    for value in given:
        known = isinstance(value, _C.TensorBase)
        version = value._version if known and not value.is_inference() else None
        before.append((_layout(value), memory_of(value), version, value.grad_fn) if known else None)
    with (watch := _Watch()):
        made = function(*given)
    made = list(made) if isinstance(made, (list, tuple)) else [made]
    inputs = [_input_facts(value, each, watch, keeps_changes) for value, each in zip(given, before, strict=True)]
    bases = []
    outputs = [_output_facts(value, made, given, bases, watch) for value in made]
    return inputs, outputs, made, bases
