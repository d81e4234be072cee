"""DTensor: a tensor that is spread over a grid of processes, each of which has a part."""

import mica
from mica import _C, distributed
from mica._subclasses.dispatching import aside
from mica.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta, the_class
from mica.distributed.tensor._gradients import begin_pass, root_gradient, whole_pass
from mica.distributed.tensor._redistribute import (
    Redistribute,
    redistribute_local_tensor,
    redistributed,
)
from mica.distributed.tensor._utils import compute_global_tensor_info, normalize_placements
from mica.distributed.tensor.placement_types import Partial, Replicate, gradient_placements


class _ToLocal(mica.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, grad_placements):
        ctx.spec, ctx.placements = tensor._spec, grad_placements
        ctx.set_materialize_grads(False)
        return tensor._local_tensor.detach()

    @staticmethod
    def backward(ctx, grad):
        if grad is None:
            return None, None
        begin_pass()
        placements = ctx.placements or gradient_placements(ctx.spec.placements)
        if _C.is_grad_enabled():
            return _FromLocal.apply(grad, ctx.spec.mesh, placements, ctx.spec.tensor_meta, None), None
        return DTensor(grad, ctx.spec.with_placements(placements), requires_grad=False), None


class _FromLocal(mica.autograd.Function):
    @staticmethod
    def forward(ctx, local, mesh, placements, meta, grad_placements):
        ctx.placements = grad_placements or gradient_placements(placements)
        ctx.set_materialize_grads(False)
        return DTensor(local.detach(), DTensorSpec(mesh, placements, meta), requires_grad=False)

    @staticmethod
    def backward(ctx, grad):
        if grad is None:
            return (None,) * 5
        begin_pass()
        if _C.is_grad_enabled():
            made = Redistribute.apply(grad, grad.device_mesh, ctx.placements)
            return _ToLocal.apply(made, None), None, None, None, None
        return redistributed(grad, ctx.placements)._local_tensor, None, None, None, None


def _current_mesh(mesh):
    return mesh or distributed.device_mesh._mesh_resources.get_current_mesh()


@the_class
class DTensor(mica.Tensor):
    """A tensor that is spread over a grid of processes. Operators on it are computed on the parts, by their rules."""

    __torch_function__ = _C._disabled_torch_function_impl
    _records_parts = True  # its gradients are those of the tensors that it is made of
    _is_spread = True
    _is_shared = False  # whether another tensor may view the memory of the part

    @staticmethod
    def __new__(cls, local_tensor, spec, *, requires_grad):
        meta = spec.tensor_meta
        with mica.no_grad():
            made = mica.Tensor._make_wrapper_subclass(
                cls, meta.shape, strides=meta.stride, dtype=meta.dtype, device=local_tensor.device
            )
        made._spec = spec
        made._local_tensor = local_tensor.detach() if local_tensor.requires_grad else local_tensor
        if requires_grad:
            with aside():
                made.requires_grad_(True)
        return made

    def __init__(self, *args, **kwargs):
        super().__init__()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        from mica.distributed.tensor._dispatch import call

        return call(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents=None):
        return f"DTensor(local_tensor={self._local_tensor}, device_mesh={self._spec.mesh}, placements={self._spec.placements})"

    __str__ = __repr__

    def __format__(self, spec):
        return repr(self) if self.dim() else format(self.item(), spec)

    @classmethod
    def _call_without_operator(cls, function, args, kwargs):
        """Expresses calls that no operator stands for by calls of operators."""
        from mica.distributed.tensor._calls import answer

        return answer(function, args, kwargs)

    # ---- what it is made of

    device_mesh = property(lambda self: self._spec.mesh)
    placements = property(lambda self: self._spec.placements)

    def __tensor_flatten__(self):
        return ["_local_tensor"], (self._spec, self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner_tensors, flatten_spec, outer_size, outer_stride):
        spec, requires_grad = flatten_spec
        local = inner_tensors["_local_tensor"]
        meta = TensorMeta(tuple(outer_size), tuple(outer_stride), spec.tensor_meta.dtype)
        return DTensor(local, DTensorSpec(spec.mesh, spec.placements, meta), requires_grad=requires_grad)

    @staticmethod
    def from_local(
        local_tensor,
        device_mesh=None,
        placements=None,
        *,
        run_check=False,
        shape=None,
        stride=None,
        grad_placements=None,
    ):
        """The tensor whose part on this process is `local_tensor`. run_check makes copies equal to the first one's."""
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(
                f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value."
            )
        mesh = _current_mesh(device_mesh)
        local_tensor = _on_device(local_tensor, mesh)
        if (shape is None) != (stride is None):
            raise RuntimeError(
                f"Found shape:{shape}, stride:{stride}.", "Please pass both shape and stride at the same time."
            )
        placements = normalize_placements(placements, mesh, local_tensor.dim() if shape is None else len(shape))
        if grad_placements is not None:
            grad_placements = normalize_placements(grad_placements, mesh, local_tensor.dim())
        if shape is None:
            shape, stride = compute_global_tensor_info(local_tensor, mesh, placements)
        if mesh.get_coordinate() is None:
            local_tensor = local_tensor.new_empty(0, requires_grad=local_tensor.requires_grad)
        elif run_check:
            _check_alike(local_tensor, mesh)
            for dim, placement in enumerate(placements):
                if isinstance(placement, Replicate):
                    with mica.no_grad():
                        local_tensor = local_tensor.contiguous()
                        distributed.broadcast(local_tensor.detach(), group=mesh.get_group(dim), group_src=0)
        meta = TensorMeta(tuple(shape), tuple(stride), local_tensor.dtype)
        return _FromLocal.apply(local_tensor, mesh, placements, meta, grad_placements)

    def to_local(self, *, grad_placements=None):
        """This process's part, as a plain tensor with a gradient."""
        self._is_shared = True
        if not _C.is_grad_enabled() or not self.requires_grad:
            return self._local_tensor
        if grad_placements is not None:
            grad_placements = normalize_placements(grad_placements, self._spec.mesh, self.dim())
        return _ToLocal.apply(self, grad_placements)

    def redistribute(
        self, device_mesh=None, placements=None, *, async_op=False, forward_dtype=None, backward_dtype=None
    ):
        """The same tensor, spread in another way."""
        mesh = device_mesh or self._spec.mesh
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        placements = normalize_placements(placements, mesh, self.dim())
        for now, wanted in zip(self._spec.placements, placements, strict=False):
            if isinstance(wanted, Partial) and now != wanted:
                raise RuntimeError(
                    f"Can not redistribute from {now} to {wanted}, redistributing to Partial is for internal use only!"
                )
        if mesh != self._spec.mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        return Redistribute.apply(self, mesh, placements, forward_dtype, backward_dtype)

    def full_tensor(self, *, grad_placements=None):
        """All of the tensor, on every process."""
        whole = self.redistribute(placements=[Replicate()] * self._spec.mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    @property
    def data(self):
        """The same tensor without a gradient."""
        return self.detach()

    @data.setter
    def data(self, other):
        if not isinstance(other, DTensor):
            raise RuntimeError("the data of a DTensor is a DTensor: use copy_ for values, and distribute_tensor before")
        with aside():
            mica.Tensor.data.__set__(self, other)
        self._local_tensor, self._spec = other._local_tensor, other._spec

    # ---- gradients

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        """Add the gradients of the leaves, which are spread where the leaves are."""
        gradient = root_gradient(self) if gradient is None else gradient
        with whole_pass():
            _C._autograd_backward(self, gradient, retain_graph, create_graph, inputs)

    # ---- values

    def _whole(self):
        spec = self._spec.with_placements((Replicate(),) * self._spec.mesh.ndim)
        with mica.no_grad():
            return redistribute_local_tensor(self._local_tensor, self._spec, spec)

    def item(self):
        return self._whole().item()

    def tolist(self):
        return self._whole().tolist()

    def numpy(self, *, force=False):
        if not force and self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return self._whole().detach().numpy(force=force)

    def __bool__(self):
        return bool(self._whole())

    def __int__(self):
        return int(self._whole())

    def __float__(self):
        return float(self._whole())

    def __index__(self):
        return self._whole().__index__()

    def __complex__(self):
        return complex(self._whole())

    def contiguous(self, memory_format=mica.contiguous_format):
        """The tensor itself if it is row-major, else a row-major copy."""
        if self.is_contiguous(memory_format=memory_format):
            return self
        return self.clone(memory_format=memory_format)

    # ---- copies

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
            )
        made = DTensor(self._local_tensor.clone(), self._spec, requires_grad=self.requires_grad)
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            if name not in ("_spec", "_local_tensor", "_views"):
                made.__dict__[name] = value
        if self.grad is not None:
            made.grad = self.grad.__deepcopy__(memo) if isinstance(self.grad, DTensor) else self.grad.clone()
        return made

    def __reduce_ex__(self, protocol):
        return _rebuilt, (
            self._local_tensor,
            self._spec.mesh,
            self._spec.placements,
            tuple(self._spec.tensor_meta),
            self.requires_grad,
        )


def _rebuilt(local, mesh, placements, meta, requires_grad):
    return DTensor(local, DTensorSpec(mesh, placements, TensorMeta(*meta)), requires_grad=requires_grad)


def _on_device(tensor, mesh):
    return tensor if tensor.device.type in (mesh.device_type, "meta") else tensor.to(mesh.device_type)


def _check_alike(tensor, mesh):
    mine = (tuple(tensor.shape), str(tensor.dtype), tensor.requires_grad)
    for dim in range(mesh.ndim):
        group = mesh.get_group(dim)
        found = [None] * group.size()
        distributed.all_gather_object(found, mine, group=group)
        if any(each != found[0] for each in found):
            raise ValueError(
                f"Inconsistent tensor metadata (including shape, dtype and requires_grad) across ranks: {found}"
            )
