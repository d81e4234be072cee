"""Whether a function runs within a transform of torch.func, and what is refused there."""

from mica import _C

_NO_HOOKS = "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks. Please open an issue with your use case."


class transforming:
    """In this block a function that was given to a transform runs. Transforms that keep a graph refuse hooks of what it saves."""

    def __init__(self, keeps_graph=False):
        self._keeps_graph = keeps_graph

    def __enter__(self):
        if self._keeps_graph:
            self._before = _C._disable_saved_tensor_hooks(_NO_HOOKS)
        _C._enter_transform(1)

    def __exit__(self, *error):
        _C._enter_transform(-1)
        if self._keeps_graph:
            _C._disable_saved_tensor_hooks(self._before)
