"""Checkpoints that keep the results of some operations, and compute only the others again."""

import enum
from collections import defaultdict

from mica import _C, _ops
from mica.utils._python_dispatch import TorchDispatchMode
from mica.utils._pytree import tree_map

__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


class CheckpointPolicy(enum.Enum):
    """What becomes of an operation's result: it is kept for the second run, or made again there."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """The context that a policy gets beside the operation and its arguments. It has the result."""

    def __init__(self, *, is_recompute=False, op_output=None):
        self.is_recompute, self.op_output = is_recompute, op_output


_KEPT = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, True)
_AGAIN, _TAKEN = object(), object()
_MISMATCH = (
    "This can happen if the operations in the checkpointed region are nondeterministic or depend on global state that "
    "changed between forward and backward."
)


class _Kept:
    """A tensor without its history, and the version that it had."""

    def __init__(self, value):
        is_tensor = isinstance(value, _C.Tensor)
        self.value = value.detach() if is_tensor else value
        self.version = value._version if is_tensor else None

    def get(self, may_have_changed):
        if self.version is not None and not may_have_changed and self.value._version != self.version:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return self.value


def _is_ignored(operation):
    # How often these are called differs between the runs.
    return str(operation) in ("aten.detach.default", "prim.device.default")


class _Keeping(TorchDispatchMode):
    """The first run: the policy says which results are kept. They are counted by operation."""

    def __init__(self, policy, kept):
        super().__init__()
        self.policy, self.kept = policy, kept

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not _is_ignored(func):
            policy = self.policy(SelectiveCheckpointContext(op_output=result), func, *args, **kwargs)
            self.kept[func].append(tree_map(_Kept, result) if policy in _KEPT else _AGAIN)
        return result


class _Giving(TorchDispatchMode):
    """The mode of the second run: it returns kept results, and computes the others."""

    def __init__(self, kept, may_have_changed):
        super().__init__()
        self.kept, self.may_have_changed = kept, may_have_changed

    def __enter__(self):
        self.counts = defaultdict(int)
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _is_ignored(func):
            return func(*args, **(kwargs or {}))
        number = self.counts[func]
        self.counts[func] += 1
        if func not in self.kept:
            raise RuntimeError(f"{func} encountered during backward but not found in storage. {_MISMATCH}")
        results = self.kept[func]
        if number >= len(results):
            raise RuntimeError(
                f"{func} invocation index {number} encountered during backward but not found in storage. {_MISMATCH}"
            )
        found = results[number]
        if found is _TAKEN:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under "
                "selective activation checkpoint."
            )
        if found is _AGAIN:
            return func(*args, **(kwargs or {}))
        results[number] = _TAKEN
        return tree_map(lambda kept: kept.get(self.may_have_changed), found)


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """The contexts of the first and the second run, for `checkpoint(context_fn=)`.

    A policy is called with a SelectiveCheckpointContext, an operation (`torch.ops.aten.mm.default`) and its arguments, and
    returns a CheckpointPolicy. A list of operations keeps the results of those.
    """
    policy = policy_fn_or_list
    if isinstance(policy_fn_or_list, list):
        for operation in policy_fn_or_list:
            if not isinstance(operation, _ops.OpOverload):
                more = (
                    "Please update the OpOverloadPacket to a specific OpOverload.For example, if you have "
                    "`torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`."
                )
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {operation} of type {type(operation)}. "
                    f"{more if isinstance(operation, _ops.OpOverloadPacket) else ''}"
                )

        def policy(context, operation, *args, **kwargs):
            return operation in policy_fn_or_list

    elif not callable(policy_fn_or_list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept = defaultdict(list)
    return _Keeping(policy, kept), _Giving(kept, allow_cache_entry_mutation)
