"""Parameters of one sharded module: together they are gathered before use and scattered after it.

A parameter is cut along one dimension, its first one unless the program says another, as torch.chunk cuts. Each process
keeps its piece in a DTensor. Before the module computes, the pieces of all its parameters are gathered in one message
into parameters of the full size; afterwards the memory of those is given back. Their gradients are reduced in one
message, of which each process gets its piece.
"""

import mica
from mica import nn
from mica.distributed.fsdp._places import put
from mica.distributed.fsdp._spread import spread_like, wrapping


class FullParameter:
    """A parameter that is cut: the piece of this process, and the whole while it is gathered.

    Of a parameter that is spread already, over another dimension of the same grid, this process's part is cut further.
    """

    def __init__(self, parameter, places, mesh, dim, policy, offload, compute_device):
        self.places = places  # (module, name) of all who share it
        self.spread = getattr(parameter, "_spec", None)
        tensor = parameter.detach() if self.spread is None else parameter._local_tensor
        self.dim = dim if dim >= 0 else dim + tensor.dim()
        if not 0 <= self.dim < tensor.dim():
            raise ValueError(f"shard_placement_fn: a parameter of {tensor.dim()} dimensions has no dimension {dim}")
        self.shape, self.dtype = tensor.shape, parameter.dtype
        self.device = compute_device
        self.param_dtype = (
            policy.param_dtype if parameter.is_floating_point() and policy.param_dtype else parameter.dtype
        )
        size, rank = mesh.size(mesh.ndim - 1), mesh.get_local_rank(mesh.ndim - 1)
        self.length = self.shape[self.dim]
        self.rows = -(-self.length // size)  # rows of a piece; the last pieces may have fewer
        first = min(rank * self.rows, self.length)
        self.own_rows = min(first + self.rows, self.length) - first
        self.row = self.shape.numel() // self.length if self.length else 0
        with mica.no_grad():
            piece = tensor.narrow(self.dim, first, self.own_rows).clone(memory_format=mica.contiguous_format)
        if offload and not piece.is_meta:
            piece = piece.cpu()
        self.wrap = wrapping(parameter, mesh, self.dim)
        self.sharded = nn.Parameter(self.wrap(piece), requires_grad=parameter.requires_grad)
        for name, value in vars(parameter).items():
            if name not in ("_spec", "_local_tensor", "_views", "_is_param"):
                setattr(self.sharded, name, value)
        self.full = self.whole = None  # the parameter that modules compute with, and the tensor that has its memory
        self.kept_gradient = None  # the gradient of backward passes that do not reduce
        self.use(self.sharded)

    @property
    def local(self):
        return (
            self.sharded.to_local().detach()
            if not hasattr(self.sharded, "_local_tensor")
            else self.sharded._local_tensor
        )

    # ---- a piece as rows, one after the other

    def as_rows(self, tensor):
        """The tensor as a matrix whose rows are along the dimension that is cut."""
        moved = tensor if self.dim == 0 else tensor.movedim(self.dim, 0)
        return moved.reshape(tensor.shape[self.dim], self.row)

    def from_rows(self, rows):
        """A matrix of rows as it lies in the tensor."""
        others = [size for i, size in enumerate(self.shape) if i != self.dim]
        tensor = rows.reshape(rows.shape[0], *others)
        return tensor if self.dim == 0 else tensor.movedim(0, self.dim)

    def use(self, parameter):
        for module, name in self.places:
            put(module, name, parameter)

    def refresh(self):
        """A program may have put another parameter in the place: the state of a checkpoint, or other memory."""
        module, name = self.places[0]
        now = module._parameters[name]
        if now is not self.sharded and now is not self.full:
            self.sharded = now
            self.use(now)

    def allocate(self):
        """Memory for the whole; autograd may hold the parameter of the forward pass, which gets memory again."""
        if self.full is None:
            self.whole = mica.empty(self.shape, dtype=self.param_dtype, device=self.device)
            made = self.whole if self.spread is None else spread_like(self.whole, self.spread)
            self.full = nn.Parameter(made, requires_grad=self.sharded.requires_grad)
            self.nbytes = self.whole.untyped_storage().nbytes()
        elif self.whole.untyped_storage().nbytes() != self.nbytes:
            self.whole.untyped_storage().resize_(self.nbytes)

    def free(self):
        if self.whole is not None:
            self.whole.untyped_storage().resize_(0)

    def take_gradient(self):
        """The gradient of the whole parameter, plus what earlier passes have left; None if there is none."""
        gradient = None if self.full is None else self.full.grad
        if gradient is not None:
            self.full.grad = None
            if self.spread is not None:
                gradient = gradient.redistribute(placements=self.spread.placements)._local_tensor
        if self.kept_gradient is not None:
            gradient = self.kept_gradient if gradient is None else gradient + self.kept_gradient
            self.kept_gradient = None
        return gradient


class ParameterGroup:
    """The parameters that one module brings: gathered and reduced together."""

    def __init__(self, parameters, mesh, policy, offload, compute_device, dim_of=None, keeps=None):
        self.mesh, self.policy, self.offload = mesh, policy, offload
        self.group = mesh.get_group(mesh.ndim - 1)
        self.size = mesh.size(mesh.ndim - 1)
        self.replicas = mesh.get_group(0) if mesh.ndim == 2 else None
        self.device = compute_device
        self.parameters = [
            FullParameter(parameter, places, mesh, dim_of(parameter) if dim_of else 0, policy, offload, compute_device)
            for parameter, places in parameters
        ]
        self.is_whole = False
        self.syncs = self.reduces_replicas = True
        self.divide_factor = self.all_reduce_hook = None
        # After forward a process may keep a larger piece, so that few processes together have everything: (their group,
        # pieces).
        self.keeps, self._kept = keeps, {}
        self._gathering = self._reducing = None

    # ---- gathering -----------------------------------------------------------------------------------------------

    def _kinds(self):
        kinds = {}
        for parameter in self.parameters:
            kinds.setdefault(parameter.param_dtype, []).append(parameter)
        return kinds.items()

    def start_gathering(self, forward=False):
        """Begins to gather the pieces, unless they are here or on their way. Forward uses none of an earlier forward."""
        if forward:
            self._kept.clear()
        if self.is_whole or self._gathering is not None:
            return
        from mica.distributed import all_gather_into_tensor

        self._gathering = []
        with mica.no_grad():
            for dtype, parameters in self._kinds():
                for parameter in parameters:
                    parameter.refresh()
                count = sum(p.rows * p.row for p in parameters)
                kept = self._kept.pop(dtype, None)
                if kept is not None:
                    every = mica.empty(self.size, count, dtype=dtype, device=self.device)
                    work = all_gather_into_tensor(every.view(-1), kept, group=self.keeps[0], async_op=True)
                    self._gathering.append((work, every, parameters))
                    continue
                mine = mica.zeros(count, dtype=dtype, device=self.device)
                at = 0
                for p in parameters:
                    mine.narrow(0, at, p.own_rows * p.row).copy_(p.as_rows(p.local).reshape(-1))
                    at += p.rows * p.row
                if self.size == 1:
                    self._gathering.append((None, mine.view(1, count), parameters))
                    continue
                every = mica.empty(self.size, count, dtype=dtype, device=self.device)
                work = all_gather_into_tensor(every.view(-1), mine, group=self.group, async_op=True)
                self._gathering.append((work, every, parameters))

    def gather(self, forward=False):
        """Makes the modules compute with whole parameters."""
        if self.is_whole:
            return
        self.start_gathering(forward)
        gathering, self._gathering = self._gathering, None
        may_train = mica.is_grad_enabled()
        with mica.no_grad():
            for work, every, parameters in gathering:
                if work is not None:
                    work.wait()
                if forward and self.keeps is not None and may_train:
                    group, pieces = self.keeps
                    self._kept[every.dtype] = every.view(pieces, -1)[group.rank()].clone()
                at = 0
                for p in parameters:
                    p.allocate()
                    count = p.rows * p.row
                    if count:
                        rows = every.narrow(1, at, count).reshape(self.size * p.rows, p.row).narrow(0, 0, p.length)
                        # Autograd counts versions of what it has saved, and it has saved this same value.
                        p.whole.data.copy_(p.from_rows(rows))
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

    def forget(self):
        """Leaves what an error has interrupted."""
        self._reducing = None
        self._kept.clear()
        for parameter in self.parameters:
            parameter.kept_gradient = None
            if parameter.full is not None:
                parameter.full.grad = None
        self.scatter()

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
                        for piece, rows in enumerate(p.as_rows(gradient.detach()).split(p.rows)):
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
                if self.all_reduce_hook is not None:
                    self.all_reduce_hook(mine)
                at = 0
                for p in parameters:
                    piece = p.from_rows(mine.narrow(0, at, p.own_rows * p.row).view(p.own_rows, p.row))
                    at += p.rows * p.row
                    piece = piece.to(p.dtype, copy=True, memory_format=mica.contiguous_format)
                    if self.offload:
                        piece = piece.cpu()
                    if p.sharded.grad is None:
                        p.sharded.grad = p.wrap(piece)
                    else:
                        p.sharded.grad.to_local().detach().add_(piece)
