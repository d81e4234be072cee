"""`inspect.estimate()`: the peak of a step before anything is allocated, found by running it on the meta device."""

import copy

import mica
from mica import _C
from mica.inspect._memory import KINDS, memory
from mica.inspect._terminal import readable_bytes, table


class Estimate:
    """The peak of one step, by category; `fits(bytes)`, and `largest_batch(bytes)` where a batch was given."""

    def __init__(self, record, training, rerun, batch):
        self._record, self._rerun, self.batch = record, rerun, batch
        self.training = training
        self.peak = record.peak()
        self.kinds = record.at_peak()

    def fits(self, amount):
        """Whether the step fits into this many bytes."""
        return self.peak <= amount

    def largest_batch(self, amount):
        """The largest size of the inputs' first dimension for which the step fits into this many bytes; 0 if none does."""
        if self.batch is None:
            raise ValueError("largest_batch(): the inputs have no first dimension to change")
        if not self._rerun(1).fits(amount):
            return 0
        low, high = 1, 2
        while self._rerun(high).fits(amount):
            low, high = high, high * 2
            if high > 1 << 24:
                return low
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._rerun(middle).fits(amount) else (low, middle)
        return low

    def to_dict(self):
        """Everything as plain values."""
        return {"peak": self.peak, **{kind: self.kinds[kind] for kind in KINDS}}

    def table(self):
        """The categories as text."""
        rows = [
            (kind, readable_bytes(amount), f"{100 * amount / (self.peak or 1):.1f} %")
            for kind, amount in self.kinds.items()
            if amount
        ]
        what = "a training step" if self.training else "an inference step"
        return f"peak of {what}: {readable_bytes(self.peak)}\n\n" + table(("category", "bytes", "share"), rows, "<>>")

    def __str__(self):
        return self.table()

    __repr__ = __str__


def _tensors(value):
    """The tensors in lists, tuples and dicts."""
    if isinstance(value, _C.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _on_meta(value, dtype, batch=None):
    """The value with its tensors replaced by ones without memory; floating-point ones of `dtype`."""
    if isinstance(value, _C.Tensor):
        shape = list(value.shape)
        if batch is not None and shape:
            shape[0] = batch
        wanted = dtype if dtype is not None and value.is_floating_point() else value.dtype
        return mica.empty(shape, dtype=wanted, device="meta", requires_grad=value.requires_grad and value.is_leaf)
    if isinstance(value, dict):
        return {key: _on_meta(item, dtype, batch) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_on_meta(item, dtype, batch) for item in value)
    return value


def _meta_copy(model, dtype):
    """The model again, on the meta device, without copying its memory."""
    memo = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        fresh = mica.empty(
            tensor.shape,
            dtype=dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype,
            device="meta",
        )
        memo[id(tensor)] = (
            mica.nn.Parameter(fresh, requires_grad=tensor.requires_grad)
            if isinstance(tensor, mica.nn.Parameter)
            else fresh
        )
    again = copy.deepcopy(model, memo)
    for module in again.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, _C.Tensor) and value.device.type != "meta":
                setattr(module, name, _on_meta(value, None))
        if hasattr(module, "flatten_parameters"):
            module.flatten_parameters()
    return again


def _loss_of(output, loss):
    if loss is not None:
        return loss(output)
    total = None
    for tensor in _tensors(output):
        if tensor.requires_grad:
            total = tensor.sum() if total is None else total + tensor.sum()
    if total is None:
        raise ValueError("estimate(): no output of the model requires grad; pass training=False for inference")
    return total


def _fresh_optimizer(optimizer, parameters):
    if optimizer is None:
        return None
    if isinstance(optimizer, str):
        by_name = {name.lower(): name for name in mica.optim.__all__ if name[:1].isupper()}
        if optimizer.lower() not in by_name:
            raise ValueError(f"estimate(): no optimizer is named {optimizer!r}")
        return getattr(mica.optim, by_name[optimizer.lower()])(parameters, lr=1e-3)
    if isinstance(optimizer, mica.optim.Optimizer):
        options = {k: v for k, v in optimizer.defaults.items() if k in type(optimizer).__init__.__code__.co_varnames}
        return type(optimizer)(parameters, **options)
    return optimizer(parameters)


def estimate(model, inputs, optimizer=None, dtype=None, device=None, loss=None, training=None):
    """The peak memory of one step of `model(*inputs)`, by category, without allocating it.

    `inputs` is a tensor, or a tuple of the arguments; `optimizer` a name, an optimizer, or a function of the parameters, and
    makes it a training step (`training=True` does without one). `loss(output)` makes the loss; without it the outputs are
    summed. `dtype` is that of parameters and inputs; `device` is where the step would run, "cpu" or "cuda": the engine's own
    tensors are counted, not the workspaces of a GPU's libraries.
    """
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    learns = training if training is not None else optimizer is not None
    sizes = [t.shape[0] for t in _tensors(list(arguments)) if t.dim()]
    batch = sizes[0] if sizes and all(size == sizes[0] for size in sizes) else None
    if device is not None and mica.device(device).type not in ("cpu", "cuda"):
        raise ValueError(f'estimate(): device is "cpu" or "cuda", not {device!r}')

    def run(size=None):
        updates = []
        with memory() as record:
            again = _meta_copy(model, dtype)
            given = tuple(_on_meta(value, dtype, size) for value in arguments)
            if learns:
                steps = _fresh_optimizer(optimizer, again.parameters())
                # Two steps: the optimizer's state is there from the second on.
                for _ in range(2 if steps is not None else 1):
                    if steps is not None:
                        steps.zero_grad()
                    total = _loss_of(again(*given), loss)
                    total.backward()
                    del total
                    if steps is not None:
                        before = _C._memory_so_far()[1]
                        steps.step()
                        updates.append((before, _C._memory_so_far()[1]))
            else:
                with mica.no_grad():
                    output = again(*given)
                    del output
        return Estimate(_as_it_would_be(record, updates), learns, run, size if size is not None else batch)

    return run()


def _as_it_would_be(record, updates):
    """The recording without what the program held elsewhere, and without the temporaries of the optimizer's updates.

    A device updates all of a parameter in one pass over its memory; the meta device has no such kernels and says the same in
    steps that have results of their own.
    """
    record.blocks = [
        block
        for block in record.blocks
        if block.device == "meta"
        and not block.before
        and not any(begin <= block.born and 0 <= block.died < end for begin, end in updates)
    ]
    record._at_peak = {}
    return record
