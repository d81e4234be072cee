"""How the layers of a module would be spread over devices: as values, to be named."""

from mica._absent import placeholder as _placeholder

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
    """By columns."""


class RowwiseParallel(ParallelStyle):
    """By rows."""


class SequenceParallel(ParallelStyle):
    """Along the sequence."""


class PrepareModuleInput(ParallelStyle):
    """Its inputs are spread."""


class PrepareModuleOutput(ParallelStyle):
    """Its outputs are spread."""


class PrepareModuleInputOutput(ParallelStyle):
    """Its inputs and outputs are spread."""


parallelize_module = _placeholder("distributed.tensor.parallel", "parallelize_module", "function")
loss_parallel = _placeholder("distributed.tensor.parallel", "loss_parallel", "function")
