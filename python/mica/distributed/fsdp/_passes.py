"""The forward and backward passes of sharded modules: parameters are gathered before use, gradients reduced after it."""

import functools

import mica
from mica.autograd import Function, Variable
from mica.utils._pytree import tree_flatten, tree_map, tree_unflatten


def state_of(module):
    """The state of a sharded module, or None."""
    return module.__dict__.get("_fsdp_state")


class _Run:
    """The state that sharded modules under one root share."""

    def __init__(self, root):
        self.root = root
        self.order = []  # the order of this forward pass: backward gathers in reverse
        self.last_order = []
        self.reducing = []  # states whose gradients are being sent: few, since each holds its whole gradients
        self.ends_later = False  # whether a callback waits for the end of this backward pass
        self.is_last_backward = True


class _AfterBackward(Function):
    """Passes a module's inputs on; its backward runs when the module's own backward is over."""

    @staticmethod
    def forward(ctx, state, *inputs):
        ctx.state = state
        return inputs

    @staticmethod
    def backward(ctx, *gradients):
        ctx.state.after_backward()
        return None, *gradients


class ShardedState:
    """A sharded module in its passes: when parameters are gathered and scattered, and when gradients are reduced."""

    def __init__(self, module, group, policy, reshard):
        self.module, self.group, self.policy, self.reshard = module, group, policy, reshard
        # The modules of a list that is sharded together, and those that have yet to run.
        self.modules, self.to_run = [module], set()
        self.reshard_after_backward = self.gathers_in_backward = True
        self.run = None
        self.forward_prefetch, self.backward_prefetch = [], []
        self.in_backward = False
        self.prefetches = True  # whether backward gathers for the next module in advance

    def all_modules(self):
        """The module, or the modules of a list, with those inside."""
        for each in self.modules:
            yield from each.modules()

    # ---- forward -------------------------------------------------------------------------------------------------

    def find_root(self):
        """The module that is called first is the root of the sharded modules in it."""
        if self.run is not None:
            return
        self.run = _Run(self)
        for module in self.all_modules():
            state = state_of(module)
            if state is not None and state is not self:
                state.run = self.run  # even if the module was called by itself before
                if state.reshard is None:
                    state.reshard = True
        if self.reshard is None:
            self.reshard = False  # because backward begins with this module

    def casts_inputs(self):
        return self.policy.cast_forward_inputs

    def before_forward(self, module, args, kwargs):
        self.find_root()
        if self.run.root is self:
            self.run.last_order, self.run.order = self.run.order, []
        if self.in_backward:  # a checkpoint computes forward again
            self.group and self.group.gather()
            return args, kwargs
        if self.policy.param_dtype is not None and self.casts_inputs():
            args, kwargs = tree_map(functools.partial(_cast, self.policy.param_dtype), (args, kwargs))
        if self.group is not None:
            self.group.gather(forward=True)
        for state in self.forward_prefetch:
            state.group and state.group.start_gathering(forward=True)
        return self._watch_inputs(args, kwargs)

    def _watch_inputs(self, args, kwargs):
        if not mica.is_grad_enabled() or self.group is None:
            return args, kwargs
        leaves, spec = tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, mica.Tensor) and leaf.requires_grad]
        if places:
            passed = _AfterBackward.apply(self, *[leaves[i] for i in places])
            for i, tensor in zip(places, passed, strict=True):
                leaves[i] = tensor
        return tree_unflatten(leaves, spec)

    def after_forward(self, module, args, kwargs, output):
        if self.in_backward:
            return output
        self.run.order.append(self)
        if self.group is not None and self.reshard:
            self.group.scatter()
        if mica.is_grad_enabled():
            for leaf in tree_flatten(output)[0]:
                if isinstance(leaf, mica.Tensor) and leaf.requires_grad:
                    leaf.register_hook(self._hook)
        if self.policy.output_dtype is not None:
            output = tree_map(functools.partial(_cast, self.policy.output_dtype), output)
        return output

    def before_forward_of_list(self, module, args, kwargs):
        """The first to run of the modules that are sharded together gathers for all."""
        if self.to_run:
            return args, kwargs
        self.to_run = set(self.modules)
        return self.before_forward(module, args, kwargs)

    def after_forward_of_list(self, module, args, kwargs, output):
        self.to_run.discard(module)
        return output if self.to_run else self.after_forward(module, args, kwargs, output)

    # ---- backward ------------------------------------------------------------------------------------------------

    def _hook(self, gradient):
        self.before_backward()
        return gradient

    def before_backward(self):
        run = self.run
        if not run.ends_later:
            run.ends_later = True
            Variable._execution_engine.queue_callback(run.root.end_backward)
        if self.in_backward:
            return
        self.in_backward = True
        if self.group is None:
            return
        if self.gathers_in_backward:
            self.group.gather()
        if self.backward_prefetch:
            following = self.backward_prefetch
        else:
            at = run.order.index(self) if self in run.order else 0
            following = run.order[at - 1 : at] if at and self.prefetches else []
        for state in following:
            if state.group is not None and not state.in_backward:
                state.group.start_gathering()

    def after_backward(self):
        """The gradients of this module's parameters are complete."""
        if not self.in_backward or self.group is None:
            return
        self.in_backward = False
        self.group.finish_reducing()  # from an earlier use of the module in this pass
        self.group.start_reducing()
        if self.reshard_after_backward:
            self.group.scatter()
        self.run.reducing.append(self)
        while len(self.run.reducing) > 1:
            self.run.reducing.pop(0).group.finish_reducing()

    def end_backward(self):
        """Backward is over: modules whose inputs needed no gradient have yet to be reduced."""
        states = [state for state in map(state_of, self.all_modules()) if state is not None]
        for state in states:
            state.after_backward()
            state.in_backward = False
        if self.run.is_last_backward:
            for state in states:
                if state.group is not None:
                    state.group.finish_reducing()
                    if state.reshard_after_backward:
                        state.group.scatter()
        self.run.reducing.clear()
        self.run.ends_later = False


def _cast(dtype, value):
    return value.to(dtype) if isinstance(value, mica.Tensor) and value.is_floating_point() else value
