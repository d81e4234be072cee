"""The module that torch.compile makes of a module."""

from mica._dynamo.backend_names import AS_IT_IS
from mica._dynamo.compiled_calls import as_it_is, compiled_call
from mica.compiler import _disabled, _stance
from mica.nn import Module

DISABLED = "disable"  # in the place of a backend: a module that runs uncompiled within compiled functions


class OptimizedModule(Module):
    """A module that runs another one, `_orig_mod`, and has its attributes. It is called as a module is, with its own hooks."""

    _is_compiled_module = True

    def __init__(self, mod, dynamo_ctx=None, captured=None, fullgraph=False):
        super().__init__()
        object.__setattr__(self, "_backend", dynamo_ctx)  # by its name
        object.__setattr__(self, "_captured", captured)  # for a backend that is handed graphs
        object.__setattr__(self, "_fullgraph", fullgraph)
        self._orig_mod = mod

    def _keep_forward(self, mod):
        """Keep the function that a call runs, so that a call of a small module finds it without a search."""
        if self._captured is not None:
            forward = _unless_eager(self._captured, mod)
        elif self._backend == DISABLED:
            forward = _disabled(mod)
        elif self._backend in AS_IT_IS:
            forward = as_it_is(mod)
        else:
            forward = compiled_call(mod, self._fullgraph)
        object.__setattr__(self, "forward", forward)

    @property
    def training(self):
        """Whether the module is in the mode of training: that of the module that runs."""
        return self._orig_mod.training

    @training.setter
    def training(self, mode):
        self._orig_mod.training = mode

    def __getattr__(self, name):
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name, value):
        if name == "training":
            object.__setattr__(self, name, value)
        elif name == "_orig_mod" or "_modules" not in self.__dict__:
            super().__setattr__(name, value)
            if name == "_orig_mod":
                self._keep_forward(value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name):
        delattr(self._orig_mod, name)

    def train(self, mode=True):
        super().train(mode)
        return self

    def __len__(self):
        return len(self._orig_mod)

    def __iter__(self):
        return iter(self._orig_mod)

    def __getitem__(self, index):
        return self._orig_mod[index]

    def __dir__(self):
        return sorted(set(super().__dir__()) | set(dir(self._orig_mod)))

    def __reduce__(self):
        return OptimizedModule, (self._orig_mod, self._backend, None, self._fullgraph)


def _unless_eager(captured, mod):
    """Runs `captured`, or the module as it is under the stance "force_eager"."""

    def forward(*args, **kwargs):
        return (mod if _stance.name == "force_eager" else captured)(*args, **kwargs)

    return forward


OptimizedModule.__module__ = "mica._dynamo.eval_frame"  # the name in pickles
