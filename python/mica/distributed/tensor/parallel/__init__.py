"""How the layers of a module would be spread over devices: as values, to be named."""

from mica._as_torch.absent import placeholder as _placeholder

__all__ = ["ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
           "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module"]  # fmt: skip


class ParallelStyle:
    """A way to spread a layer: it keeps how it was asked for."""

    def __init__(self, *args, **options):
        self.args, self.options = args, options
        vars(self).update(options)

    def _apply(self, module, device_mesh):
        raise NotImplementedError("a layer cannot be spread over devices: Mica computes in one process")

    def __repr__(self):
        options = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"{type(self).__name__}({', '.join(options)})"


class ColwiseParallel(ParallelStyle):
    """Splits a layer's weight by columns."""


class RowwiseParallel(ParallelStyle):
    """Splits a layer's weight by rows."""


class SequenceParallel(ParallelStyle):
    """Splits activations along the sequence."""


class PrepareModuleInput(ParallelStyle):
    """Says how a module's inputs are laid out over devices."""


class PrepareModuleOutput(ParallelStyle):
    """Says how a module's outputs are laid out over devices."""


class PrepareModuleInputOutput(ParallelStyle):
    """Says how a module's inputs and outputs are laid out over devices."""


parallelize_module = _placeholder("distributed.tensor.parallel", "parallelize_module", "function")
loss_parallel = _placeholder("distributed.tensor.parallel", "loss_parallel", "function")
