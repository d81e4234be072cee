"""Parameters of one module as one flat tensor, of which each process has a piece: what FullyShardedDataParallel keeps.

A FlatGroup answers the calls of ParameterGroup, so that the same machine drives both. While the module computes, its
parameters are views of the gathered flat tensor. Otherwise they are, with `use_orig_params`, the parameters themselves,
whose memory is what this process has of them; without, one FlatParameter stands for all.
"""

import contextlib

import mica
from mica import nn
from mica.distributed.fsdp._places import hide, put

__all__ = ["FlatGroup", "FlatParameter"]


class FlatParameter(nn.Parameter):
    """This process's piece of a module's parameters, one after the other."""


class View:
    """A parameter's part of the flat tensor."""

    def __init__(self, parameter, places, offset):
        self.parameter, self.places, self.offset = (
            parameter,
            places,
            offset,
        )  # places: (module, name, name in the model)
        self.shape, self.numel, self.requires_grad = parameter.shape, parameter.numel(), parameter.requires_grad
        self.name = places[0][2]

    def of(self, flat):
        return flat.narrow(0, self.offset, self.numel).view(self.shape)

    def stand_in(self):
        """The stand-in for a parameter while it is not gathered. It has the parameter's sizes and dtype."""
        return self.parameter.detach().new_empty(()).expand(self.shape)

    def within(self, start, length):
        """(begin, length) of its part of a piece of the flat tensor, counted from the piece's begin."""
        begin = min(max(self.offset, start), start + length)
        end = max(min(self.offset + self.numel, start + length), begin)
        return begin - start, end - begin


class FlatGroup:
    """The parameters that one wrapped module brings."""

    def __init__(self, module, parameters, group, replicas, policy, offload, device, use_orig_params):
        self.module, self.group, self.replicas = module, group, replicas
        self.policy, self.offload, self.device, self.use_orig_params = policy, offload, device, use_orig_params
        self.size, self.rank = (group.size(), group.rank()) if group is not None else (1, 0)
        self.is_whole = False
        self.syncs = self.reduces_replicas = True
        self.divide_factor = self.comm_hook = None
        self._gathering = self._reducing = self._kept_gradient = None
        self.dtype = _only("dtype", {parameter.dtype for parameter, _ in parameters})
        trained = {parameter.requires_grad for parameter, _ in parameters}
        if not use_orig_params:
            _only("requires_grad", trained, " when `use_orig_params=False`")
        self.views, offset = [], 0
        for parameter, places in parameters:
            self.views.append(View(parameter, places, offset))
            offset += parameter.numel()
        self.numel = offset
        self.piece = -(-offset // self.size)
        self.start = self.piece * self.rank
        with mica.no_grad():
            parts = [parameter.detach().to(device).reshape(-1) for parameter, _ in parameters]
            whole = mica.cat([*parts, parts[0].new_zeros(self.piece * self.size - offset)])
            piece = whole.narrow(0, self.start, self.piece).clone()
        self.flat = FlatParameter(piece.cpu() if offload else piece, requires_grad=any(trained))
        self.full = None
        for view in self.views:
            for owner, name, _ in view.places:
                if not use_orig_params:
                    hide(owner, name, view.stand_in())
        if not use_orig_params:
            module.register_parameter("_flat_param", self.flat)
        self.use_pieces()

    @property
    def param_dtype(self):
        return self.policy.param_dtype or self.dtype

    # ---- what the modules have

    def use_pieces(self):
        """Parameters are this process's pieces."""
        if not self.use_orig_params:
            return
        for view in self.views:
            begin, length = view.within(self.start, self.piece)
            part = self.flat.data.narrow(0, begin, length)
            view.parameter.data = part.view(view.shape) if self.size == 1 else part
            for owner, name, _ in view.places:
                put(owner, name, view.parameter)

    def use_views(self):
        """Parameters are views of the whole, through which gradients reach it."""
        with mica.enable_grad():
            for view in self.views:
                tensor = view.of(self.full if view.requires_grad else self.full.detach())
                for owner, name, _ in view.places:
                    (put if self.use_orig_params else hide)(owner, name, tensor)

    def take_changes(self):
        """Take over the values of parameters to which the program has given other memory."""
        if not self.use_orig_params:
            return self.flat.data
        first = self.views[0].parameter
        if first.dtype != self.dtype or first.device != self.flat.device:
            self.dtype, self.flat.data = first.dtype, self.flat.data.to(first.device, first.dtype)
        flat, size = self.flat.data, self.flat.element_size()
        for view in self.views:
            begin, length = view.within(self.start, self.piece)
            now = view.parameter.data
            if now.numel() == length and now.data_ptr() != flat.data_ptr() + begin * size and length:
                flat.narrow(0, begin, length).copy_(now.reshape(-1))
        return flat

    # ---- gathering

    def start_gathering(self, forward=False):
        """Begins to gather the pieces, unless they are here or on their way."""
        if not self.is_whole and self._gathering is None:
            with mica.no_grad():
                self._gathering = self._gather(self.take_changes().to(self.device, self.param_dtype))

    def _gather(self, piece):
        from mica.distributed import all_gather_into_tensor

        if self.size == 1:
            return None, piece
        every = mica.empty(self.size * self.piece, dtype=piece.dtype, device=piece.device)
        return all_gather_into_tensor(every, piece, group=self.group, async_op=True), every

    def gathered(self, piece):
        """All pieces of a tensor that lies as the flat one does, without what fills it up."""
        work, every = self._gather(piece.detach().to(self.device).contiguous())
        if work is not None:
            work.wait()
        return every.narrow(0, 0, self.numel)

    def gather(self, forward=False):
        """Makes the module compute with whole parameters."""
        if self.is_whole:
            return
        self.start_gathering()
        (work, every), self._gathering = self._gathering, None
        if work is not None:
            work.wait()
        with mica.no_grad():
            if self.full is None or self.full.dtype != every.dtype:
                self.full = nn.Parameter(mica.empty_like(every), requires_grad=self.flat.requires_grad)
                self.nbytes = self.full.untyped_storage().nbytes()
            elif self.full.untyped_storage().nbytes() != self.nbytes:
                self.full.untyped_storage().resize_(self.nbytes)
            self.full.data.copy_(every)  # autograd has saved this same value, so it is no new version
        self.use_views()
        self.is_whole = True

    def scatter(self):
        """Gives the memory of the whole back."""
        if self._gathering is not None:
            self.gather()
        if self.is_whole:
            self.is_whole = False
            self.use_pieces()
            self.full.untyped_storage().resize_(0)

    # ---- gradients

    def start_reducing(self):
        """Sends the gradient of the whole; without synchronisation it is kept."""
        gradient = None if self.full is None else self.full.grad
        if gradient is not None:
            self.full.grad = None
        if self._kept_gradient is not None:
            gradient = self._kept_gradient if gradient is None else gradient + self._kept_gradient
            self._kept_gradient = None
        if gradient is None:
            return
        if not self.syncs:
            self._kept_gradient = gradient
            return
        from mica.distributed import ReduceOp, reduce_scatter_tensor

        with mica.no_grad():
            every = gradient.detach().to(self.policy.reduce_dtype or gradient.dtype).contiguous()
            mine = every if self.size == 1 else mica.empty(self.piece, dtype=every.dtype, device=every.device)
            work = None
            if self.comm_hook is not None:
                state, hook = self.comm_hook
                hook(state, every) if self.size == 1 else hook(state, every, mine)
            elif self.size > 1:
                work = reduce_scatter_tensor(mine, every, ReduceOp.AVG, self.group, async_op=True)
            self._reducing = (work, mine, every)

    def finish_reducing(self):
        """Hands this process's piece of the reduced gradient out."""
        if self._reducing is None:
            return
        from mica.distributed import ReduceOp, all_reduce

        (work, mine, _), self._reducing = self._reducing, None
        if work is not None:
            work.wait()
        with mica.no_grad():
            if self.replicas is not None and self.reduces_replicas and not (self.comm_hook and self.size == 1):
                all_reduce(mine, ReduceOp.AVG, self.replicas)
            mine = mine.to(self.dtype)
            mine = mine.cpu() if self.offload else mine
            if not self.use_orig_params:
                self._add(self.flat, mine)
                return
            for view in self.views:
                if not view.parameter.requires_grad:
                    continue
                begin, length = view.within(self.start, self.piece)
                part = mine.narrow(0, begin, length)
                self._add(view.parameter, part.view(view.shape) if self.size == 1 else part)

    def _add(self, parameter, gradient):
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    # ---- whole parameters for programs

    def piece_of_gradient(self):
        """The gradient as one piece, or None."""
        if not self.use_orig_params:
            return self.flat.grad
        if all(view.parameter.grad is None for view in self.views):
            return None
        made = mica.zeros_like(self.flat.data)
        for view in self.views:
            begin, length = view.within(self.start, self.piece)
            if view.parameter.grad is not None:
                made.narrow(0, begin, length).copy_(view.parameter.grad.reshape(-1))
        return made

    @contextlib.contextmanager
    def as_whole(self, writeback=True, here=True, to_cpu=False, with_grads=False):
        """A block in which parameters are whole, in their own dtype. Afterwards this process keeps its pieces of them."""
        self.scatter()
        with mica.no_grad():
            whole = self.gathered(self.take_changes())
            whole = whole.clone() if self.size == 1 else whole
            gradient = self.piece_of_gradient() if with_grads else None
            gradient = None if gradient is None else self.gathered(gradient)
        if not here:
            yield
            return
        whole = whole.cpu() if to_cpu else whole
        pieces = {}
        for view in self.views:
            pieces[view] = view.parameter.grad
            if self.use_orig_params:
                parameter = view.parameter
                parameter.grad, parameter.data = None, view.of(whole)
            else:
                parameter = nn.Parameter(view.of(whole), requires_grad=view.requires_grad)
            if gradient is not None and view.requires_grad:
                parameter.grad = view.of(gradient)
            for owner, name, _ in view.places:
                owner.__dict__.pop(name, None)
                put(owner, name, parameter)
        if not self.use_orig_params:
            del self.module._parameters["_flat_param"]
        try:
            yield
        finally:
            if writeback:
                with mica.no_grad():
                    self._write_back(whole)
            if not self.use_orig_params:
                for view in self.views:
                    for owner, name, _ in view.places:
                        owner._parameters.pop(name, None)
                        hide(owner, name, view.stand_in())
                self.module.register_parameter("_flat_param", self.flat)
            else:
                for view in self.views:
                    view.parameter.grad = None
                self.use_pieces()
                for view in self.views:
                    view.parameter.grad = pieces[view]

    def _write_back(self, whole):
        for view in self.views:
            owner, name, _ = view.places[0]
            now = owner._parameters[name].detach()
            if now.data_ptr() != whole.data_ptr() + view.offset * whole.element_size() and view.numel:
                if now.shape != view.shape:
                    raise RuntimeError(f"Cannot writeback when the parameter shape changes\n{view.name}: {now.shape}")
                view.of(whole).copy_(now)
        length = max(min(self.piece, self.numel - self.start), 0)
        if length:
            self.flat.data.narrow(0, 0, length).copy_(whole.narrow(0, self.start, length))


def _only(what, values, when=""):
    if len(values) > 1:
        listed = ", ".join(sorted(map(str, values)))
        raise ValueError(f"Must flatten tensors with uniform {what}{when} but got {listed}")
    return next(iter(values))
