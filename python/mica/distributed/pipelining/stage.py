"""A stage of a pipeline: a part of a model on one process, and what it keeps of each microbatch."""

import mica
from mica import nn

__all__ = ["PipelineStage", "build_stage"]


def _as_tuple(value):
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return (value,)


def _meta_of(tensors):
    """What a receiver must know: sizes, dtype and whether a gradient goes back, of each tensor."""
    return [(tuple(t.shape), t.dtype, bool(t.requires_grad)) for t in tensors]


class PipelineStage:
    """One of `num_stages` parts of a model. What it gives is the input of the next one, which another process may have.

    Sizes need not be given: a stage sends them to the next one with the first microbatch. `input_args` and `output_args`,
    by which torch is told the sizes, change nothing.
    """

    def __init__(
        self, submodule, stage_index, num_stages, device=None, input_args=None, output_args=None, output_grads=None,
        input_grads=None, group=None, dw_builder=None, get_mesh=None,
    ):  # fmt: skip
        from mica.distributed.world import _get_default_group

        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        if dw_builder is not None:
            raise NotImplementedError("PipelineStage(dw_builder=...) is not in Mica: autograd computes both gradients")
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.group = group or _get_default_group()
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        if self.group_size > num_stages:
            raise ValueError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}"
            )
        self.device = mica.device(device) if device is not None else _device_of(submodule)
        self.has_backward = True
        self.stage_index_to_group_rank = {i: i % self.group_size for i in range(num_stages)}
        self.clear_runtime_states()

    @property
    def is_first(self):
        """Whether this stage takes the inputs of the step."""
        return self.stage_index == 0

    @property
    def is_last(self):
        """Whether this stage gives the outputs of the step."""
        return self.stage_index == self.num_stages - 1

    def clear_runtime_states(self):
        """Forgets the microbatches of a step."""
        self._input_meta = self._told_next = None  # the shapes that are sent with the first microbatch of a step
        self.kept = {}  # microbatch: (inputs, outputs)
        self.output_chunks = {}
        self.waiting = {}  # microbatch: (outputs, gradients) whose gradients of weights are still to be computed
        self.backward_count = 0

    # ---- forward

    def forward_one_chunk(self, chunk, inputs, kwargs=None):
        """The outputs for a microbatch, as a tuple; with gradients, what backward needs is kept."""
        inputs = _as_tuple(inputs)
        module = self.submod
        if isinstance(module, nn.parallel.DistributedDataParallel):
            with module.no_sync():  # gradients are reduced once, after the last microbatch
                output = module(*inputs, **(kwargs or {}))
        else:
            output = module(*inputs, **(kwargs or {}))
        outputs = _as_tuple(output)
        if not all(isinstance(each, mica.Tensor) for each in outputs) and not self.is_last:
            kinds = ", ".join(type(each).__name__ for each in outputs)
            raise TypeError(f"stage {self.stage_index} must give tensors to the next one, but gave {kinds}")
        self.output_chunks[chunk] = output
        if self.has_backward and mica.is_grad_enabled():
            self.kept[chunk] = (inputs, outputs)
        return outputs

    # ---- backward

    def backward_one_chunk(self, chunk, loss=None, gradients=None, full=True):
        """The gradients of a microbatch's inputs, for the stage before; `full`: those of the weights are added too."""
        inputs, outputs = self.kept.pop(chunk)
        if loss is not None:
            roots, gradients = [loss], [None]
        else:
            pairs = [(out, gradient) for out, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
            roots, gradients = [out for out, _ in pairs], [gradient for _, gradient in pairs]
        wanted = [tensor for tensor in inputs if isinstance(tensor, mica.Tensor) and tensor.requires_grad]
        wanted = [] if self.is_first else wanted
        self.backward_count += 1
        if full:
            if roots:
                mica.autograd.backward(roots, gradients)
            found = [tensor.grad for tensor in wanted]
        else:
            found = []
            if wanted:
                grads = mica.autograd.grad(roots, wanted, gradients, retain_graph=True, allow_unused=True)
                found = list(grads)
            self.waiting[chunk] = (roots, gradients)
        found = iter(found)
        return [next(found) if any(tensor is each for each in wanted) else None for tensor in inputs]

    def backward_weight_one_chunk(self, chunk):
        """Adds the gradients of the weights that backward_one_chunk(full=False) has left."""
        roots, gradients = self.waiting.pop(chunk)
        weights = [parameter for parameter in self.submod.parameters() if parameter.requires_grad]
        if roots and weights:
            mica.autograd.backward(roots, gradients, inputs=weights)

    def set_sync(self, syncs):
        """Whether a sharded module reduces the gradients of the next backward pass."""
        from mica.distributed.fsdp import FSDPModule

        if isinstance(self.submod, FSDPModule):
            self.submod.set_requires_gradient_sync(syncs)

    def scale_grads(self, factor):
        """Divides the gradients, which are sums over microbatches."""
        for parameter in self.submod.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(factor)

    def reduce_grads(self):
        """The mean over the copies of a stage, where it is a DistributedDataParallel."""
        module = self.submod
        if not isinstance(module, nn.parallel.DistributedDataParallel):
            return
        kinds = {}
        for parameter in module.parameters():
            if parameter.grad is not None:
                kinds.setdefault(parameter.grad.dtype, []).append(parameter.grad)
        for gradients in kinds.values():
            flat = mica.cat([gradient.reshape(-1) for gradient in gradients])
            mica.distributed.all_reduce(flat, mica.distributed.ReduceOp.AVG, module.process_group)
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))


def _device_of(module):
    return next((parameter.device for parameter in module.parameters()), mica.device("cpu"))


def build_stage(stage_module, stage_index, pipe_info, device, group=None):
    """The stage of a module that `pipeline` has cut off."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)
