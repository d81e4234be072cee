"""Schedules: how the microbatches of a step go through the stages of a pipeline and back."""

import mica
from mica.distributed.pipelining import _orders
from mica.distributed.pipelining._messages import Mail
from mica.distributed.pipelining._orders import BACKWARD, FORWARD, INPUT_GRADIENT
from mica.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks

__all__ = [
    "PipelineScheduleMulti", "PipelineScheduleSingle", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "get_schedule_class",
]  # fmt: skip


class _PipelineSchedule:
    """A step: arguments are cut into microbatches, which go through the stages in an order that each schedule has."""

    def __init__(
        self, stages, n_microbatches, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None, output_merge_spec=None,
        scale_grads=True,
    ):  # fmt: skip
        if n_microbatches < 1:
            raise ValueError(f"a step has at least one microbatch, not {n_microbatches}")
        self._stages = sorted(stages, key=lambda stage: stage.stage_index)
        first = self._stages[0]
        self._num_stages, self.pp_group_size, self.rank = first.num_stages, first.group_size, first.group_rank
        self._group, self._place = first.group, first.stage_index_to_group_rank
        mine = [i for i in range(self._num_stages) if self._place[i] == self.rank]
        if [stage.stage_index for stage in self._stages] != mine:
            found = [stage.stage_index for stage in self._stages]
            raise ValueError(
                f"rank {self.rank} of the pipeline's group has the stages {mine} of {self._num_stages}, not {found}"
            )
        self._n_microbatches, self._loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self._has_backward = loss_fn is not None
        self._orders = {
            place: self._order([i for i in range(self._num_stages) if self._place[i] == place], place)
            for place in range(self.pp_group_size)
        }
        self._forward_orders = {
            place: _orders.forward_only([i for i in range(self._num_stages) if self._place[i] == place], n_microbatches)
            for place in range(self.pp_group_size)
        }

    def _order(self, stages, place):
        """The actions of one process."""
        raise NotImplementedError

    # ---- a step

    def step(self, *args, target=None, losses=None, return_outputs=True, loss_kwargs=None, **kwargs):
        """Forward and, if there is a loss, backward of a batch. The process of the last stage gets the outputs.

        The process of the first stage gives the arguments, that of the last one the target, and a list for the losses.
        """
        if self._has_backward and not mica.is_grad_enabled():
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() "
                "context. Please call eval() instead."
            )
        return self._run(self._has_backward, args, kwargs, target, losses, return_outputs, loss_kwargs)

    def eval(self, *args, target=None, losses=None, return_outputs=True, loss_kwargs=None, **kwargs):
        """Forward of a batch."""
        with mica.no_grad():
            return self._run(False, args, kwargs, target, losses, return_outputs, loss_kwargs)

    def _run(self, trains, args, kwargs, target, losses, return_outputs, loss_kwargs):
        count = self._n_microbatches
        args_of, kwargs_of = split_args_kwargs_into_chunks(
            args, kwargs, count, self._args_chunk_spec, self._kwargs_chunk_spec
        )
        last = next((stage for stage in self._stages if stage.is_last), None)
        targets = None if target is None else mica.tensor_split(target, count)
        if last is not None and targets is None and (trains or losses is not None):
            raise ValueError("the process of the last stage needs a target for the loss")
        orders = self._orders if trains else self._forward_orders
        mail = Mail(self._stages, orders, self._place, self._group, trains)
        for stage in self._stages:
            stage.clear_runtime_states()
            stage.has_backward = trains
        found = {}

        def loss_of(stage, chunk):
            value = self._loss_fn(stage.output_chunks[chunk], targets[chunk], **(loss_kwargs or {}))
            found[chunk] = value

        for kind, number, chunk in orders[self.rank]:
            stage = mail.stages[number]
            if kind == FORWARD:
                self._forward(mail, stage, chunk, args_of, kwargs_of)
                if stage.is_last and self._loss_fn is not None and targets is not None:
                    loss_of(stage, chunk)
            elif kind in (BACKWARD, INPUT_GRADIENT):
                self._backward(mail, stage, chunk, found.get(chunk) if stage.is_last else None, kind == BACKWARD)
            else:
                stage.backward_weight_one_chunk(chunk)
        mail.finish()
        if trains:
            for stage in self._stages:
                stage.reduce_grads()
                if self.scale_grads:
                    stage.scale_grads(count)
        if losses is not None and last is not None:
            losses[:] = [found[chunk].detach() for chunk in range(count)]
        merged = None
        if last is not None and return_outputs:
            merged = merge_chunks([last.output_chunks[chunk] for chunk in range(count)], self._output_merge_spec)
        for stage in self._stages:
            stage.clear_runtime_states()
        return merged

    def _forward(self, mail, stage, chunk, args_of, kwargs_of):
        if stage.is_first:
            inputs = args_of[chunk]
        else:
            arrived = mail.take("input", stage.stage_index, chunk)
            if stage._input_meta is None:  # from a stage of this process
                stage._input_meta = [(tuple(t.shape), t.dtype, bool(t.requires_grad)) for t in arrived]
            inputs = tuple(
                tensor.detach().requires_grad_(trained and stage.has_backward)
                for tensor, (_, _, trained) in zip(arrived, stage._input_meta, strict=True)
            )
        outputs = stage.forward_one_chunk(chunk, inputs, kwargs_of[chunk])
        if not stage.is_last:
            mail.give("input", stage.stage_index + 1, chunk, outputs)

    def _backward(self, mail, stage, chunk, loss, full):
        gradients = None if stage.is_last else mail.take("gradient", stage.stage_index, chunk)
        stage.set_sync(stage.backward_count == self._n_microbatches - 1)
        made = stage.backward_one_chunk(chunk, loss, gradients, full)
        if not stage.is_first:
            mail.give("gradient", stage.stage_index - 1, chunk, made)


class PipelineScheduleSingle(_PipelineSchedule):
    """Schedules of one stage for each process."""

    def __init__(
        self, stage, n_microbatches, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None, output_merge_spec=None,
        scale_grads=True,
    ):  # fmt: skip
        if stage.num_stages != stage.group_size:
            raise ValueError(
                f"{type(self).__name__} has one stage for each process: {stage.num_stages} stages on {stage.group_size}"
            )
        super().__init__(
            [stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads
        )
        self._stage = stage


class _ScheduleForwardOnly(PipelineScheduleSingle):
    """No backward pass."""

    def _order(self, stages, place):
        return _orders.forward_only(stages, self._n_microbatches)


class ScheduleGPipe(PipelineScheduleSingle):
    """All microbatches forward, then all backward."""

    def _order(self, stages, place):
        return _orders.gpipe(stages, self._n_microbatches)


class Schedule1F1B(PipelineScheduleSingle):
    """One microbatch forward, one backward, once the pipeline is full."""

    def _order(self, stages, place):
        return _orders.one_forward_one_backward(stages, self._n_microbatches, self._num_stages)


class PipelineScheduleMulti(_PipelineSchedule):
    """Schedules of several stages for each process."""


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All microbatches through each stage of a process before its next one."""

    def _order(self, stages, place):
        return _orders.looped_breadth_first(stages, self._n_microbatches)


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """One forward, one backward over several stages of each process."""

    def _order(self, stages, place):
        return _orders.interleaved(stages, self._n_microbatches, place, self.pp_group_size)


class ScheduleInterleavedZeroBubble(PipelineScheduleMulti):
    """ScheduleInterleaved1F1B in which the gradients of weights are computed when a process would stand idle."""

    def _order(self, stages, place):
        return _orders.interleaved(stages, self._n_microbatches, place, self.pp_group_size, split_backward=True)


class _VShaped(PipelineScheduleMulti):
    """Schedules of two stages for each process, one from the begin and one from the end: laid out as a V."""

    def __init__(self, stages, *args, **options):
        for stage in stages:
            if stage.num_stages != 2 * stage.group_size:
                raise ValueError(
                    f"{type(self).__name__} has two stages for each process, not {stage.num_stages} in all"
                )
            stage.stage_index_to_group_rank = {i: _orders.v_place(i, stage.group_size) for i in range(stage.num_stages)}
        super().__init__(stages, *args, **options)


class ScheduleZBVZeroBubble(_VShaped):
    """Two stages for each process, laid out as a V, and gradients of weights computed when it would stand idle."""

    def _order(self, stages, place):
        return _orders.v_shaped(self._n_microbatches, self.pp_group_size)[place]


class ScheduleDualPipeV(_VShaped):
    """Two stages for each process, laid out as a V; forward passes of one and backward passes of the other by pairs."""

    def _order(self, stages, place):
        if self._n_microbatches < self._num_stages:
            raise ValueError(
                "DualPipeV requires at least as many microbatches as stages, but got "
                f"{self._n_microbatches} microbatches and {self._num_stages} stages."
            )
        return _orders.dual_pipe_v(self._n_microbatches, place, self.pp_group_size)


def get_schedule_class(schedule_name):
    """The class of a schedule by its name, in letters of any size."""
    known = {
        "1F1B": Schedule1F1B, "GPipe": ScheduleGPipe, "Interleaved1F1B": ScheduleInterleaved1F1B,
        "InterleavedZeroBubble": ScheduleInterleavedZeroBubble, "LoopedBFS": ScheduleLoopedBFS,
        "ZBVZeroBubble": ScheduleZBVZeroBubble, "DualPipeV": ScheduleDualPipeV, "PipelineScheduleMulti": PipelineScheduleMulti, "PipelineScheduleSingle": PipelineScheduleSingle,
    }  # fmt: skip
    for name, schedule in known.items():
        if name.lower() == schedule_name.lower():
            return schedule
    raise ValueError(f"Unknown schedule '{schedule_name}'. The valid options are {list(known)}")
