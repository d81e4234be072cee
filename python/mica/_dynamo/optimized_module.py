"""The module that torch.compile makes of a module."""

from mica import _C
from mica._dynamo.backend_names import AS_IT_IS
from mica.compiler import _stance
from mica.nn import Module


class OptimizedModule(Module):
    """A module that runs another one, `_orig_mod`, and has its attributes."""

    _is_compiled_module = True

    def __init__(self, mod, dynamo_ctx=None, captured=None, fullgraph=False):
        super().__init__()
        object.__setattr__(self, "_backend", dynamo_ctx)  # by its name
        object.__setattr__(self, "_captured", captured)  # for a backend that is handed graphs
        object.__setattr__(self, "_fullgraph", fullgraph)
        self._orig_mod = mod
        self.training = mod.training

    def __call__(self, *args, **kwargs):
        if self._captured is not None and _stance.name != "force_eager":
            return self._captured(*args, **kwargs)
        return self._run(*args, **kwargs)

    forward = __call__

    def _keep_call(self, mod):
        """Keep the function that a call runs, so that a call of a small module finds it without a search."""
        as_it_is = self._backend in AS_IT_IS or self._captured is not None
        object.__setattr__(self, "_run", mod if as_it_is else _C._CompiledCall(mod, self._fullgraph))

    def __getattr__(self, name):
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name, value):
        if name in ("_orig_mod", "training") or "_modules" not in self.__dict__:
            super().__setattr__(name, value)
            if name == "_orig_mod":
                self._keep_call(value)
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


OptimizedModule.__module__ = "mica._dynamo.eval_frame"  # the name in pickles
