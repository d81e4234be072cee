"""Parameters of one sharded module: together they are gathered before use and scattered after it.

A parameter is cut along its first dimension, as torch.chunk cuts. Each process keeps its piece in a DTensor. Before the
module computes, the pieces of all its parameters are gathered in one message into parameters of the full size; after
it, the memory of those is given back. Their gradients are reduced in one message, of which each process gets its piece.
"""

import mica
from mica import nn


class FullParameter:
    """A parameter that is cut: the piece of this process, and the whole while it is gathered."""

    def __init__(self, parameter, places, mesh, shard_dim_of_mesh, policy, offload, compute_device):
        from mica.distributed.tensor import DTensor, Replicate, Shard

        self.places = places  # (module, name) of all who share it
        self.shape, self.dtype = parameter.shape, parameter.dtype
        self.stride = parameter.contiguous().stride()
        self.device = compute_device
        self.param_dtype = (
            policy.param_dtype if parameter.is_floating_point() and policy.param_dtype else parameter.dtype
        )
        size, rank = mesh.size(shard_dim_of_mesh), mesh.get_local_rank(shard_dim_of_mesh)
        self.rows = -(-self.shape[0] // size) if self.shape[0] else 0  # of a piece; the last ones may have fewer
        first = min(rank * self.rows, self.shape[0])
        self.own_rows = min(first + self.rows, self.shape[0]) - first
        self.row = self.shape[1:].numel()
        with mica.no_grad():
            piece = parameter.detach().narrow(0, first, self.own_rows).clone(memory_format=mica.contiguous_format)
        if offload and not piece.is_meta:
            piece = piece.cpu()
        self.mesh = mesh
        self.placements = [Replicate()] * (mesh.ndim - 1) + [Shard(0)]
        self.wrap = lambda local: DTensor.from_local(
            local, mesh, self.placements, run_check=False, shape=self.shape, stride=self.stride
        )
        self.sharded = nn.Parameter(self.wrap(piece), requires_grad=parameter.requires_grad)
        for name, value in vars(parameter).items():
            setattr(self.sharded, name, value)
        self.full = None
        self.kept_gradient = None  # of backward passes that do not reduce
        self.use(self.sharded)

    @property
    def local(self):
        return (
            self.sharded.to_local().detach()
            if not hasattr(self.sharded, "_local_tensor")
            else self.sharded._local_tensor
        )

    def use(self, parameter):
        for module, name in self.places:
            module._parameters[name] = parameter

    def refresh(self):
        """A program may have put another parameter in the place: the state of a checkpoint, or other memory."""
        module, name = self.places[0]
        now = module._parameters[name]
        if now is not self.sharded and now is not self.full:
            self.sharded = now
            for other, its_name in self.places:
                other._parameters[its_name] = now

    def allocate(self):
        """Memory for the whole; autograd may hold the parameter of the forward pass, which gets memory again."""
        if self.full is None:
            whole = mica.empty(self.shape, dtype=self.param_dtype, device=self.device)
            self.full = nn.Parameter(whole, requires_grad=self.sharded.requires_grad)
            self.nbytes = self.full.untyped_storage().nbytes()
        elif self.full.untyped_storage().nbytes() != self.nbytes:
            self.full.untyped_storage().resize_(self.nbytes)

    def free(self):
        if self.full is not None:
            self.full.untyped_storage().resize_(0)

    def take_gradient(self):
        """The gradient of the whole, with what earlier passes have left; None if there is none."""
        gradient = None if self.full is None else self.full.grad
        if gradient is not None:
            self.full.grad = None
        if self.kept_gradient is not None:
            gradient = self.kept_gradient if gradient is None else gradient + self.kept_gradient
            self.kept_gradient = None
        return gradient


class ParameterGroup:
    """The parameters that one module brings: gathered and reduced together."""

    def __init__(self, parameters, mesh, policy, offload, compute_device):
        self.mesh, self.policy, self.offload = mesh, policy, offload
        self.group = mesh.get_group(mesh.ndim - 1)
        self.size = mesh.size(mesh.ndim - 1)
        self.replicas = mesh.get_group(0) if mesh.ndim == 2 else None
        self.device = compute_device
        self.parameters = [
            FullParameter(parameter, places, mesh, mesh.ndim - 1, policy, offload, compute_device)
            for parameter, places in parameters
        ]
        self.is_whole = False
        self.syncs = self.reduces_replicas = True
        self.divide_factor = None
        self._gathering = self._reducing = None

    # ---- gathering -----------------------------------------------------------------------------------------------

    def _kinds(self):
        kinds = {}
        for parameter in self.parameters:
            kinds.setdefault(parameter.param_dtype, []).append(parameter)
        return kinds.items()

    def start_gathering(self):
        """Begins to gather the pieces, unless they are here or on their way."""
        if self.is_whole or self._gathering is not None:
            return
        from mica.distributed import all_gather_into_tensor

        self._gathering = []
        with mica.no_grad():
            for dtype, parameters in self._kinds():
                for parameter in parameters:
                    parameter.refresh()
                count = sum(p.rows * p.row for p in parameters)
                mine = mica.zeros(count, dtype=dtype, device=self.device)
                at = 0
                for p in parameters:
                    mine.narrow(0, at, p.own_rows * p.row).copy_(p.local.reshape(-1))
                    at += p.rows * p.row
                if self.size == 1:
                    self._gathering.append((None, mine.view(1, count), parameters))
                    continue
                every = mica.empty(self.size, count, dtype=dtype, device=self.device)
                work = all_gather_into_tensor(every.view(-1), mine, group=self.group, async_op=True)
                self._gathering.append((work, every, parameters))

    def gather(self):
        """Makes the modules compute with whole parameters."""
        if self.is_whole:
            return
        self.start_gathering()
        gathering, self._gathering = self._gathering, None
        with mica.no_grad():
            for work, every, parameters in gathering:
                if work is not None:
                    work.wait()
                at = 0
                for p in parameters:
                    p.allocate()
                    count = p.rows * p.row
                    pieces = (
                        every.narrow(1, at, count).reshape(self.size * p.rows, p.row) if count else every.new_empty(0)
                    )
                    if count:
                        # What autograd has saved counts versions, and this is the value it has saved.
                        p.full.data.copy_(pieces.narrow(0, 0, p.shape[0]).view(p.shape))
                    at += count
                    p.use(p.full)
        self.is_whole = True

    def scatter(self):
        """Gives the memory of whole parameters back."""
        if self._gathering is not None:
            self.gather()
        if not self.is_whole:
            return
        for parameter in self.parameters:
            parameter.use(parameter.sharded)
            parameter.free()
        self.is_whole = False

    # ---- gradients -----------------------------------------------------------------------------------------------

    def start_reducing(self):
        """Sends the gradients of the whole parameters; without synchronisation they are kept."""
        if not self.syncs:
            for parameter in self.parameters:
                parameter.kept_gradient = parameter.take_gradient()
            return
        from mica.distributed import ReduceOp, reduce_scatter_tensor

        kinds, self._reducing = {}, []
        for parameter in self.parameters:
            gradient = parameter.take_gradient()
            if gradient is None:
                continue
            dtype = self.policy.reduce_dtype or gradient.dtype
            kinds.setdefault(dtype, []).append((parameter, gradient))
        with mica.no_grad():
            for dtype, pairs in kinds.items():
                count = sum(p.rows * p.row for p, _ in pairs)
                every = mica.zeros(self.size, count, dtype=dtype, device=self.device)
                at = 0
                for p, gradient in pairs:
                    if p.rows * p.row:
                        place = every.narrow(1, at, p.rows * p.row)
                        for piece, rows in enumerate(gradient.detach().reshape(p.shape[0], p.row).split(p.rows)):
                            place[piece, : rows.numel()] = rows.reshape(-1)
                    at += p.rows * p.row
                if self.divide_factor is not None:
                    every /= self.divide_factor
                op = ReduceOp.AVG if self.divide_factor is None else ReduceOp.SUM
                mine = every.view(-1) if self.size == 1 else mica.empty(count, dtype=dtype, device=self.device)
                work = None
                if self.size > 1:
                    work = reduce_scatter_tensor(mine, every.view(-1), op, self.group, async_op=True)
                self._reducing.append((work, mine, every, [p for p, _ in pairs]))

    def finish_reducing(self):
        """Hands the pieces of the reduced gradients out."""
        if self._reducing is None:
            return
        from mica.distributed import ReduceOp, all_reduce

        reducing, self._reducing = self._reducing, None
        with mica.no_grad():
            for work, mine, _, parameters in reducing:
                if work is not None:
                    work.wait()
                if self.replicas is not None and self.reduces_replicas:
                    all_reduce(mine, ReduceOp.AVG if self.divide_factor is None else ReduceOp.SUM, self.replicas)
                at = 0
                for p in parameters:
                    piece = mine.narrow(0, at, p.own_rows * p.row).view(p.own_rows, *p.shape[1:])
                    at += p.rows * p.row
                    piece = piece.to(p.dtype, copy=True)
                    if self.offload:
                        piece = piece.cpu()
                    if p.sharded.grad is None:
                        p.sharded.grad = p.wrap(piece)
                    else:
                        p.sharded.grad.to_local().detach().add_(piece)
