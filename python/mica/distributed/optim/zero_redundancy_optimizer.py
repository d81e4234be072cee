"""An optimizer whose state is spread over processes: each holds that of some parameters, and sends them what it updates."""

import copy

import mica
from mica.distributed.algorithms.join import Join, Joinable, JoinHook
from mica.optim import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class _Ended(JoinHook):
    """Takes part in the steps of processes that still have inputs."""

    def __init__(self, zero):
        if not isinstance(zero, ZeroRedundancyOptimizer):
            raise TypeError(f"expected a ZeroRedundancyOptimizer, got {type(zero).__name__}")
        self.zero = zero

    def main_hook(self):
        self.zero.step()


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Steps a part of the parameters with `optimizer_class`, and gets the others from the processes that step them.

    Parameters go to the processes by size, the largest first, each to the process that has least so far: all processes
    compute the same division.
    """

    def __init__(
        self,
        params,
        optimizer_class,
        process_group=None,
        parameters_as_bucket_view=False,
        overlap_with_ddp=False,
        **defaults,
    ):
        from mica.distributed import get_rank, get_world_size
        from mica.distributed.world import _group

        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer(overlap_with_ddp=True) is not in Mica yet")
        Joinable.__init__(self)
        self._ready = False
        self.process_group = _group(process_group)
        self.rank, self.world_size = get_rank(self.process_group), get_world_size(self.process_group)
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._optim_constructor, self._optim_defaults = optimizer_class, defaults
        self._owners, self._consolidated = None, None
        Optimizer.__init__(self, params, defaults)
        self._check_kinds()
        self._divide()
        self._ready = True

    def _check_kinds(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.is_sparse:
                    raise ValueError("ZeroRedundancyOptimizer requires using the same dense type for all parameters")

    # ---- who holds what ------------------------------------------------------------------------------------------

    def _divide(self):
        """Gives each parameter to a process, and makes this process's optimizer of those that are its own."""
        loads, self._owners = [0] * self.world_size, {}
        mine = []
        for group in self.param_groups:
            for parameter in sorted(group["params"], key=lambda p: -p.numel()):
                owner = loads.index(min(loads))
                loads[owner] += parameter.numel()
                self._owners[parameter] = owner
            own = [p for p in group["params"] if self._owners[p] == self.rank]
            mine.append({**{k: v for k, v in group.items() if k != "params"}, "params": own})
        # An optimizer needs at least one parameter, but there may be fewer parameters than processes.
        if all(not group["params"] for group in mine):
            mine[0]["params"] = [mica.nn.Parameter(mica.empty(0))]
        self.optim = self._optim_constructor(mine, **self._optim_defaults)
        for ours, theirs in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in theirs.items():
                if name != "params":
                    ours.setdefault(name, value)
        self.state = self.optim.state

    def add_param_group(self, param_group):
        """More parameters to optimise; all parameters are divided anew, with the state that there is."""
        Optimizer.add_param_group(self, param_group)
        if self._ready:
            if self.optim.state:
                raise RuntimeError("add_param_group after a step is not in Mica yet: add groups before training")
            self._divide()

    def _pass_on_settings(self):
        for ours, theirs in zip(self.param_groups, self.optim.param_groups, strict=True):
            for name, value in ours.items():
                if name != "params":
                    theirs[name] = value

    # ---- a step --------------------------------------------------------------------------------------------------

    def step(self, closure=None, **kwargs):
        """Steps the parameters of this process, then gets those of the others."""
        Join.notify_join_context(self)
        self._pass_on_settings()
        loss = self.optim.step(closure, **kwargs) if closure is not None else self.optim.step(**kwargs)
        self._share()
        return loss

    def _share(self):
        from mica.distributed import broadcast, get_global_rank

        kinds = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                kind = self._owners[parameter], parameter.dtype, parameter.device
                kinds.setdefault(kind, []).append(parameter.detach())
        under_way = []
        for (owner, *_), tensors in sorted(kinds.items(), key=lambda item: (item[0][0], str(item[0][1:]))):
            flat = mica.cat([tensor.reshape(-1) for tensor in tensors])
            source = get_global_rank(self.process_group, owner)
            under_way.append((broadcast(flat, source, self.process_group, async_op=True), owner, flat, tensors))
        for work, owner, flat, tensors in under_way:
            if work is not None:
                work.wait()
            if owner != self.rank:
                parts = flat.split([tensor.numel() for tensor in tensors])
                mica._foreach_copy_(tensors, [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)])

    # ---- state ---------------------------------------------------------------------------------------------------

    def _index(self):
        numbers = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(parameter, len(numbers))
        return numbers

    def consolidate_state_dict(self, to=0):
        """Gathers the state of all processes on the process `to`, for state_dict()."""
        from mica.distributed import gather_object

        numbers = self._index()
        mine = {numbers[p]: copy.deepcopy(state) for p, state in self.optim.state.items() if p in numbers}
        parts = [None] * self.world_size if self.rank == to else None
        from mica.distributed import get_global_rank

        gather_object(mine, parts, get_global_rank(self.process_group, to), self.process_group)
        if parts is not None:
            self._consolidated = {index: state for part in parts for index, state in part.items()}

    def state_dict(self):
        """The state of all processes, on the one where consolidate_state_dict() gathered it."""
        if self._consolidated is None:
            raise RuntimeError(
                f"Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{self.rank})` on all ranks beforehand if you meant to save the global state."
            )
        numbers = self._index()
        groups = [{**g, "params": [numbers[p] for p in g["params"]]} for g in self.param_groups]
        return {"state": dict(sorted(self._consolidated.items())), "param_groups": groups}

    def load_state_dict(self, state_dict):
        """Takes of a whole state what this process is to hold."""
        numbers = self._index()
        mine = {numbers[p] for p in numbers if self._owners[p] == self.rank}
        kept = {index: state for index, state in state_dict["state"].items() if index in mine}
        Optimizer.load_state_dict(self, {"state": kept, "param_groups": state_dict["param_groups"]})
        self.optim.state.update(self.state)
        self.state = self.optim.state
        self._consolidated = None
        self._pass_on_settings()

    # ---- processes with different numbers of inputs --------------------------------------------------------------

    def join_hook(self, **kwargs):
        return _Ended(self)

    @property
    def join_device(self):
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self):
        return self.process_group
