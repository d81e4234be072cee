"""How one module is spread: what becomes of its parameters, its inputs and its outputs."""

import abc
import functools
from typing import ClassVar

import mica
from mica import nn
from mica.distributed.tensor._api import DTensor
from mica.distributed.tensor._distribute import distribute_module, distribute_tensor
from mica.distributed.tensor._utils import normalize_placements
from mica.distributed.tensor.placement_types import Placement, Replicate, Shard

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
    "RowwiseParallel", "SequenceParallel",
]  # fmt: skip


class ParallelStyle(abc.ABC):
    """A way to spread a module."""

    src_data_rank = 0

    @abc.abstractmethod
    def _apply(self, module, device_mesh): ...


class _LayerStyle(ParallelStyle):
    """A layer with weights: it takes its input in one way, and hands its output on in another."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__()
        self.input_layouts = (input_layouts or self._default_input(),)
        self.output_layouts = (output_layouts or self._default_output(),)
        self.desired_input_layouts = (self._default_input(),)
        self.use_local_output = use_local_output

    @staticmethod
    def _prepare_input_fn(input_layouts, desired_input_layouts, mod, inputs, device_mesh):
        given = inputs[0]
        if not isinstance(given, DTensor):
            given = DTensor.from_local(given, device_mesh, input_layouts, run_check=False)
        if input_layouts != desired_input_layouts:
            given = given.redistribute(placements=desired_input_layouts, async_op=True)
        return (given, *inputs[1:])

    @staticmethod
    def _prepare_output_fn(output_layouts, use_local_output, mod, outputs, device_mesh):
        output_layouts = normalize_placements(output_layouts, device_mesh, outputs.dim())
        if outputs.placements != output_layouts:
            outputs = outputs.redistribute(placements=output_layouts, async_op=True)
        return outputs.to_local() if use_local_output else outputs

    def _spread(self, module, mesh, placements):
        """Parameters by name: where each is split; what is not named is copied."""
        for name, parameter in list(module.named_parameters(recurse=False)):
            made = distribute_tensor(
                parameter, mesh, [placements.get(name, Replicate())], src_data_rank=self.src_data_rank
            )
            module.register_parameter(name, nn.Parameter(made, requires_grad=parameter.requires_grad))

    def _partition(self, kind, name, module, mesh):
        self._spread(module, mesh, kind)

    def _apply(self, module, device_mesh):
        kind = next((places for layer, places in self._PLACES.items() if isinstance(module, layer)), None)
        if kind is None:
            names = " and ".join(layer.__name__ for layer in self._PLACES)
            raise NotImplementedError(f"{type(self).__name__} currently only support nn.{names} modules!")
        self._begin(module)
        return distribute_module(
            module, device_mesh, functools.partial(self._partition, kind),
            functools.partial(self._prepare_input_fn, self.input_layouts, self.desired_input_layouts),
            functools.partial(self._prepare_output_fn, self.output_layouts, self.use_local_output),
        )  # fmt: skip

    def _begin(self, module):
        pass

    def __repr__(self):
        return (
            f"{type(self).__name__}(input_layouts={self.input_layouts}, output_layouts={self.output_layouts}, "
            f"use_local_output={self.use_local_output})"
        )


class ColwiseParallel(_LayerStyle):
    """A linear layer or an embedding whose outputs are split: each process computes some of the features."""

    _PLACES: ClassVar = {nn.Linear: {"weight": Shard(0), "bias": Shard(0)}, nn.Embedding: {"weight": Shard(1)}}

    @staticmethod
    def _default_input():
        return Replicate()

    @staticmethod
    def _default_output():
        return Shard(-1)


class RowwiseParallel(_LayerStyle):
    """A linear layer whose inputs are split, or an embedding whose rows are: each process has a term of the output."""

    _PLACES: ClassVar = {nn.Linear: {"weight": Shard(1)}, nn.Embedding: {"weight": Shard(0)}}

    @staticmethod
    def _default_input():
        return Shard(-1)

    @staticmethod
    def _default_output():
        return Replicate()

    def _begin(self, module):
        self.desired_input_layouts = (Replicate() if isinstance(module, nn.Embedding) else Shard(-1),)


class SequenceParallel(ParallelStyle):
    """A norm or dropout of inputs that are split along the sequence. Its parameters are copies."""

    def __init__(self, *, sequence_dim=1, use_local_output=False):
        super().__init__()
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _partition(self, name, module, mesh):
        for key, parameter in list(module.named_parameters(recurse=False)):
            made = DTensor.from_local(parameter.detach(), mesh, [Replicate()], run_check=False)
            module.register_parameter(key, nn.Parameter(made, requires_grad=parameter.requires_grad))

    @staticmethod
    def _prepare_input_fn(sequence_sharding, mod, inputs, device_mesh):
        given = inputs[0]
        if isinstance(given, DTensor):
            if given.placements != sequence_sharding:
                given = given.redistribute(placements=sequence_sharding, async_op=True)
            return given
        if isinstance(given, mica.Tensor):
            return DTensor.from_local(given, device_mesh, sequence_sharding, run_check=False)
        raise ValueError(f"expecting input of {mod} to be a torch.Tensor or DTensor, but got {given}")

    @staticmethod
    def _prepare_output_fn(use_local_output, mod, outputs, device_mesh):
        return outputs.to_local() if use_local_output else outputs

    def _apply(self, module, device_mesh):
        return distribute_module(
            module, device_mesh, self._partition, functools.partial(self._prepare_input_fn, self.sequence_sharding),
            functools.partial(self._prepare_output_fn, self.use_local_output),
        )  # fmt: skip

    def __repr__(self):
        dim = self.sequence_sharding[0].dim
        return f"SequenceParallel(sequence_dim={dim}, use_local_output={self.use_local_output})"


def _listed(layouts):
    return (layouts,) if isinstance(layouts, Placement) else None if layouts is None else tuple(layouts)


def _arranged(value, layout, desired, mesh, local):
    """One input or output: made a spread tensor, spread as desired, and a plain one again if asked."""
    if layout is None or not isinstance(value, mica.Tensor):
        return value
    spread = value
    if not isinstance(value, DTensor):
        spread = DTensor.from_local(value, mesh, (layout,), run_check=False)
    if desired is not None and layout != desired:
        spread = spread.redistribute(placements=(desired,))
    return spread.to_local() if local else spread


class PrepareModuleInput(ParallelStyle):
    """Spreads the arguments of a module as the module expects them."""

    def __init__(
        self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts=None,
        desired_input_kwarg_layouts=None, use_local_output=False,
    ):  # fmt: skip
        self.input_layouts, self.desired_input_layouts = _listed(input_layouts), _listed(desired_input_layouts)
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        self.with_kwargs = input_kwarg_layouts is not None
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        if self.with_kwargs and len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have same length!")

    def _prepare_input_fn(self, inputs, device_mesh):
        if self.input_layouts is None:
            return inputs
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(inputs) != len(self.input_layouts):
            raise ValueError("module inputs and input_layouts should have same length!")
        local = self.use_local_output
        return tuple(
            _arranged(value, layout, desired, device_mesh, local)
            for value, layout, desired in zip(inputs, self.input_layouts, self.desired_input_layouts, strict=True)
        )

    def _prepare_input_kwarg_fn(self, inputs, kwargs, device_mesh):
        made = {
            key: _arranged(
                value, self.input_kwarg_layouts.get(key), self.desired_input_kwarg_layouts.get(key), device_mesh,
                self.use_local_output,
            )
            for key, value in kwargs.items()
        }  # fmt: skip
        return self._prepare_input_fn(inputs, device_mesh), made

    def _apply(self, module, device_mesh):
        if self.with_kwargs:
            module.register_forward_pre_hook(
                lambda _, inputs, kwargs: self._prepare_input_kwarg_fn(inputs, kwargs, device_mesh), with_kwargs=True
            )
        else:
            module.register_forward_pre_hook(lambda _, inputs: self._prepare_input_fn(inputs, device_mesh))
        return module

    def __repr__(self):
        return (
            f"PrepareModuleInput(input_layouts={self.input_layouts}, desired_input_layouts={self.desired_input_layouts}, "
            f"input_kwarg_layouts={self.input_kwarg_layouts}, "
            f"desired_input_kwarg_layouts={self.desired_input_kwarg_layouts}, use_local_output={self.use_local_output})"
        )


class PrepareModuleOutput(ParallelStyle):
    """Spreads the results of a module as others expect them."""

    def __init__(self, *, output_layouts, desired_output_layouts, use_local_output=True):
        self.output_layouts, self.desired_output_layouts = _listed(output_layouts), _listed(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _prepare_out_fn(self, outputs, device_mesh):
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(listed) != len(self.output_layouts):
            raise ValueError("module outputs and output_layouts should have same length!")
        made = tuple(
            _arranged(value, layout, desired, device_mesh, self.use_local_output)
            for value, layout, desired in zip(listed, self.output_layouts, self.desired_output_layouts, strict=True)
        )
        return made[0] if len(made) == 1 else made

    def _apply(self, module, device_mesh):
        module.register_forward_hook(lambda _, inputs, outputs: self._prepare_out_fn(outputs, device_mesh))
        return module

    def __repr__(self):
        return (
            f"PrepareModuleOutput(output_layouts={self.output_layouts}, "
            f"desired_output_layouts={self.desired_output_layouts}, use_local_output={self.use_local_output})"
        )


class PrepareModuleInputOutput(ParallelStyle):
    """PrepareModuleInput and PrepareModuleOutput of one module."""

    def __init__(
        self, *, input_layouts=None, desired_input_layouts=None, input_kwarg_layouts=None,
        desired_input_kwarg_layouts=None, use_local_input=False, output_layouts, desired_output_layouts,
        use_local_output=True,
    ):  # fmt: skip
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts, desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )  # fmt: skip
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module, device_mesh):
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
