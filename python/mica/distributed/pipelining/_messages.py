"""What stages of a pipeline send each other: every pair of processes has one stream of messages in a known order.

A process knows the orders of all others, and so the order in which each sends to it. It takes messages in that order and
keeps those that it needs later; no tags are needed, and any backend will do. The first message between two stages is
preceded by the sizes of its tensors.
"""

import mica
from mica.distributed.pipelining._orders import FORWARD, sends_gradient


class Mail:
    """The messages of one step."""

    def __init__(self, stages, orders, place_of_stage, group, keeps_gradients):
        self.stages = {stage.stage_index: stage for stage in stages}
        self.place, self.group, self.me = place_of_stage, group, group.rank()
        self.last = len(place_of_stage) - 1
        self.arrived, self.sent = {}, []
        self.coming = {}  # process: what it sends here, in order
        for sender, order in orders.items():
            if sender == self.me:
                continue
            self.coming[sender] = [
                message
                for kind, stage, chunk in order
                for message in self._sent_by(kind, stage, chunk, keeps_gradients)
                if self.place[message[1]] == self.me
            ]

    def _sent_by(self, kind, stage, chunk, keeps_gradients):
        """(what, the stage that it is for, microbatch) of the messages that follow an action."""
        if kind == FORWARD and stage < self.last:
            return [("input", stage + 1, chunk)]
        if keeps_gradients and sends_gradient(kind) and stage > 0:
            return [("gradient", stage - 1, chunk)]
        return []

    # ---- sending

    def give(self, what, stage, chunk, tensors):
        """Hands tensors to a stage, here or in another process."""
        if self.place[stage] == self.me:
            self.arrived[what, stage, chunk] = list(tensors)
            return
        to = self.place[stage]
        if what == "input":
            source = self.stages[stage - 1]
            meta = [(tuple(t.shape), t.dtype, bool(t.requires_grad)) for t in tensors]
            if source._told_next is None:
                source._told_next = meta
                mica.distributed.send_object_list([meta], group=self.group, group_dst=to, device=mica.device("cpu"))
            elif source._told_next != meta:
                raise RuntimeError(
                    f"stage {stage - 1} gave {meta} for microbatch {chunk} but {source._told_next} before: all microbatches "
                    "must have the same sizes"
                )
        else:
            source = self.stages[stage + 1]
            tensors = [
                mica.zeros(shape, dtype=dtype, device=source.device) if tensor is None else tensor
                for tensor, (shape, dtype, trained) in zip(tensors, source._input_meta, strict=True)
                if trained
            ]
        for tensor in tensors:
            tensor = tensor.detach().contiguous()
            self.sent.append((mica.distributed.isend(tensor, group=self.group, group_dst=to), tensor))

    # ---- receiving

    def take(self, what, stage, chunk):
        """The tensors of a message. Messages that arrive before it are kept for later."""
        wanted = (what, stage, chunk)
        sender = self.place[stage - 1 if what == "input" else stage + 1]
        while wanted not in self.arrived:
            if sender == self.me or not self.coming[sender]:
                raise RuntimeError(
                    f"the order of the schedule never sends the {what} of microbatch {chunk} to stage {stage}"
                )
            message = self.coming[sender].pop(0)
            self.arrived[message] = self._receive(message, sender)
        return self.arrived.pop(wanted)

    def _receive(self, message, sender):
        what, number, _ = message
        stage = self.stages[number]
        if what == "input":
            if stage._input_meta is None:
                told = [None]
                mica.distributed.recv_object_list(told, group=self.group, group_src=sender, device=mica.device("cpu"))
                stage._input_meta = told[0]
            return [self._tensor(shape, dtype, stage.device, sender) for shape, dtype, _ in stage._input_meta]
        return [
            self._tensor(shape, dtype, stage.device, sender) if trained else None
            for shape, dtype, trained in stage._told_next
        ]

    def _tensor(self, shape, dtype, device, sender):
        made = mica.empty(shape, dtype=dtype, device=device)
        mica.distributed.recv(made, group=self.group, group_src=sender)
        return made

    def finish(self):
        """Waits until all that was sent has gone."""
        for work, _ in self.sent:
            work.wait()
        self.sent = []
