"""Groups of processes: a group holds one backend for each type of device."""

import pickle

import mica
from mica.distributed._errors import DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError
from mica.distributed._watched import note, watchers
from mica.distributed.options import AllreduceOptions, ReduceOp
from mica.distributed.work import Work

__all__ = [
    "AllreduceOptions", "Backend", "BackendConfig", "DistBackendError", "DistError", "DistNetworkError",
    "DistStoreError", "ProcessGroup", "QueueEmptyError", "ReduceOp", "Work", "reduce_op",
]  # fmt: skip

_pickler, _unpickler = pickle.Pickler, pickle.Unpickler


class _reduce_op:
    """torch's older name of ReduceOp."""

    SUM, PRODUCT, MIN, MAX = ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX


reduce_op = _reduce_op


class Backend(str):
    """The library that processes talk through, by name."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, FAKE = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]  # noqa: RUF012
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}  # noqa: RUF012
    backend_capability = {  # noqa: RUF012
        GLOO: ["cpu", "cuda"], NCCL: ["cuda"], XCCL: ["xpu"], UCC: ["cpu", "cuda"], MPI: ["cpu", "cuda"],
        FAKE: ["cpu", "cuda", "hpu", "xpu"],
    }  # fmt: skip
    _plugins = {}  # noqa: RUF012

    def __new__(cls, name):
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, got {name!r}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name, func, extended_api=False, devices=None, *, backend_class=None):
        """Let func make the backend of a name: an object with the methods of torch's backends, or a ProcessGroup.

        It is called with the store, the rank, the size of the group and the time limit; with `extended_api` with an
        object that has them, and the options of the group.
        """
        name = name.lower()
        if name != Backend.UNDEFINED and name in cls._plugins:
            raise RuntimeError(f"{name} c10d backend creator function already exist")
        if hasattr(cls, name.upper()) and name in ("gloo", "nccl", "mpi", "ucc", "xccl"):
            raise RuntimeError(f"{name} c10d backend already exist")
        if name not in cls.backend_list:
            cls.backend_list.append(name)
        setattr(cls, name.upper(), name)
        devices = [devices] if isinstance(devices, str) else devices
        for device in devices or ():
            if device not in ("cpu", "cuda"):
                cls.default_device_backend_map[device] = name
        cls.backend_capability[name] = list(devices) if devices else ["cpu", "cuda", "xpu"]
        cls._plugins[name] = _Plugin(func, extended_api)


class _Plugin:
    def __init__(self, creator_fn, extended_api):
        self.creator_fn, self.extended_api = creator_fn, extended_api


class BackendConfig:
    """Which backend serves which type of device: "gloo", or "cpu:gloo,cuda:nccl"."""

    def __init__(self, backend):
        text = str(backend)
        self.device_backend_map = {}
        if text == Backend.UNDEFINED:
            for device, name in Backend.default_device_backend_map.items():
                if device in ("cpu", "cuda"):
                    self.device_backend_map[device] = Backend(name)
        elif ":" in text:
            for part in text.lower().split(","):
                device, separator, name = part.partition(":")
                if not separator or ":" in name:
                    raise ValueError(
                        f"Invalid device:backend pairing: '{part}'. Backends are named as 'cpu:gloo,cuda:nccl'"
                    )
                if device in self.device_backend_map:
                    raise ValueError(f"Duplicate device type {device} in backend string: {text}.")
                self.device_backend_map[device] = Backend(name)
        elif text.lower() in Backend.backend_list:
            for device in Backend.backend_capability[text.lower()]:
                self.device_backend_map[device] = Backend(text)
        else:
            raise ValueError(f"Unknown backend {text!r}: there are {', '.join(Backend.backend_list[1:])}")

    def get_device_backend_map(self):
        return self.device_backend_map

    def __repr__(self):
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())


def _forward(name, first=lambda args: args[0]):
    def call(self, *args, **options):
        if watchers and name not in ("send", "recv", "recv_anysource"):
            note(name)
        return getattr(self._backend_of(first(args)), name)(*args, **options)

    call.__name__ = name
    return call


class ProcessGroup:
    """Some of the processes, and what they do together. Backends of others may derive from it."""

    group_name, group_desc, bound_device_id = "", "undefined", None
    _plain_all_reduce = None  # a short way for tensors of the CPU, if the backend has one

    def __init__(self, *args, **options):
        # (rank, size) of a class derived from it, or (store, rank, size)
        numbers = [each for each in args if isinstance(each, int)]
        self._rank, self._size = numbers[:2] if len(numbers) >= 2 else (0, 1)
        self._backends, self._config, self._store = {}, "", None

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def name(self):
        return self._get_backend_name()

    def _get_backend_name(self):
        return next(iter(self._backends.values())).name() if self._backends else "undefined"

    getBackendName = _get_backend_name

    def get_group_store(self):
        return self._store

    @property
    def _device_types(self):
        return [mica.device(each) for each in self._backends]

    def _register_backend(self, device, backend_type=None, backend=None):
        kind = mica.device(device).type
        self._backends[kind] = backend
        if kind == "cpu" and hasattr(backend, "plain_all_reduce"):
            self._plain_all_reduce = backend.plain_all_reduce()

    def _get_backend(self, device):
        found = self._backends.get(mica.device(device).type)
        if found is None:
            raise RuntimeError(f"No backend type associated with device type {mica.device(device).type}")
        return found

    def _has_hooks(self):
        return False

    def _set_group_name(self, name):
        self.group_name = name

    def _set_group_desc(self, text):
        self.group_desc = text

    def _set_default_backend(self, backend_type):
        pass

    def _set_sequence_number_for_group(self):
        pass

    def _id(self):
        return id(self)

    def _backend_of(self, tensors):
        while isinstance(tensors, (list, tuple)):
            if not tensors:
                return next(iter(self._backends.values()))
            tensors = tensors[0]
        found = self._backends.get(tensors.device.type)
        if found is None:
            raise RuntimeError(f"No backend type associated with device type {tensors.device.type}")
        return found

    allreduce, allreduce_coalesced = _forward("allreduce"), _forward("allreduce_coalesced")
    reduce, broadcast = _forward("reduce"), _forward("broadcast")
    allgather = _forward("allgather", lambda args: args[1])
    _allgather_base = _forward("_allgather_base", lambda args: args[1])
    allgather_coalesced = _forward("allgather_coalesced", lambda args: args[1])
    allgather_into_tensor_coalesced = _forward("allgather_into_tensor_coalesced", lambda args: args[1])
    gather = _forward("gather", lambda args: args[1])
    scatter = _forward("scatter")
    reduce_scatter, _reduce_scatter_base = _forward("reduce_scatter"), _forward("_reduce_scatter_base")
    reduce_scatter_tensor_coalesced = _forward("reduce_scatter_tensor_coalesced")
    all_gather_single = _forward("_allgather_base", lambda args: args[1])
    reduce_scatter_single = _forward("_reduce_scatter_base")
    alltoall, alltoall_base = _forward("alltoall"), _forward("alltoall_base")
    send, recv, recv_anysource = _forward("send"), _forward("recv"), _forward("recv_anysource")

    def barrier(self, opts=None, *args, **options):
        device = getattr(opts, "device", None)
        backend = self._backends.get(device.type) if device is not None else None
        return (backend or next(iter(self._backends.values()))).barrier(opts)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        mica.distributed.monitored_barrier(self, timeout, wait_all_ranks)

    def set_timeout(self, timeout):
        for each in self._distinct():
            each.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def _distinct(self):
        return list({id(each): each for each in self._backends.values()}.values())

    def abort(self):
        for each in self._distinct():
            each.abort()

    def shutdown(self):
        for each in self._distinct():
            each.shutdown()

    def split_group(self, new_ranks, timeout=None, opts=None, group_name=None, group_desc=None, device_types=None):
        made = mica.distributed.new_group(new_ranks, timeout=timeout, pg_options=opts, group_desc=group_desc)
        return made if isinstance(made, ProcessGroup) else None

    def __getstate__(self):
        raise TypeError("cannot pickle a process group: it belongs to this process")


class LocalBackend:
    """The backend of a group of one process: a collective returns its input at once."""

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def __init__(self, name="gloo"):
        self._name = name

    def rank(self):
        return 0

    def size(self):
        return 1

    def name(self):
        return self._name

    getBackendName = name

    def set_timeout(self, timeout):
        pass

    def abort(self, why=""):
        pass

    shutdown = abort

    def allreduce(self, tensors, opts=None):
        return Work(list(tensors))

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, opts=None):
        if opts is not None and opts.rootRank != 0:
            raise RuntimeError(f"ProcessGroupGloo::broadcast: invalid root rank: {opts.rootRank}")
        return Work(list(tensors))

    reduce = broadcast

    @staticmethod
    def _copy(target, source):
        if target.dtype != source.dtype:
            raise RuntimeError(f"expected a tensor of {source.dtype} for the result, but got {target.dtype}")
        if target.numel() != source.numel():
            raise RuntimeError(
                f"expected a tensor of {source.numel()} elements for the result, but got {tuple(target.shape)}"
            )
        with mica.no_grad():
            target.detach().copy_(source.reshape(target.shape))

    @staticmethod
    def _single(tensors):
        if len(tensors) != 1:
            raise ValueError(f"expected a list of 1 for a group of one process, but got {len(tensors)}")
        return tensors[0]

    def allgather(self, outputs, inputs, opts=None):
        self._copy(self._single(outputs[0]), inputs[0])
        return Work(outputs[0])

    gather = allgather

    def _allgather_base(self, output, input, opts=None):
        self._copy(output, input)
        return Work([output])

    _reduce_scatter_base = all_gather_single = reduce_scatter_single = _allgather_base

    def allgather_coalesced(self, outputs, inputs, opts=None):
        for each, source in zip(outputs, inputs, strict=True):
            self._copy(self._single(each), source)
        return Work(outputs)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for each, source in zip(outputs, inputs, strict=True):
            self._copy(each, source)
        return Work(outputs)

    reduce_scatter_tensor_coalesced = allgather_into_tensor_coalesced

    def scatter(self, outputs, inputs, opts=None):
        self._copy(outputs[0], self._single(inputs[0]))
        return Work(outputs)

    reduce_scatter = scatter

    def alltoall(self, outputs, inputs, opts=None):
        self._copy(self._single(outputs), self._single(inputs))
        return Work(outputs)

    def alltoall_base(self, output, input, output_splits, input_splits, opts=None):
        for tensor, splits in ((output, output_splits), (input, input_splits)):
            if splits and list(splits) != [tensor.shape[0]]:
                raise RuntimeError(
                    f"Split sizes doesn't match total dim 0 size: one rank takes [{tensor.shape[0]}], but got {list(splits)}"
                )
        self._copy(output, input)
        return Work([output])

    def barrier(self, opts=None):
        return Work()

    def send(self, tensors, peer, tag=0):
        raise ValueError("a message needs another process: the world has one process")

    recv = send

    def recv_anysource(self, tensors, tag=0):
        return self.send(tensors, 0)
