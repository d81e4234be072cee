"""einops on Mica's tensors: its backend is registered when einops is imported, before or after Mica."""

import sys

_MODULE = "einops._backends"


def _register(backends):
    import mica

    class MicaBackend(backends.AbstractBackend):
        framework_name = "mica"

        def is_appropriate_type(self, tensor):
            return isinstance(tensor, mica.Tensor)

        def from_numpy(self, x):
            tensor = mica.from_numpy(x)
            return tensor.requires_grad_() if tensor.is_floating_point() else tensor

        def to_numpy(self, x):
            return x.numpy(force=True)

        def arange(self, start, stop):
            return mica.arange(start, stop)

        def reduce(self, x, operation, reduced_axes):
            if operation in ("min", "max"):
                return getattr(x, "a" + operation)(dim=reduced_axes)
            if operation in ("sum", "mean"):
                return getattr(x, operation)(dim=reduced_axes)
            for axis in sorted(reduced_axes, reverse=True):  # any, all, prod: one dimension at a time
                x = getattr(x, operation)(dim=axis)
            return x

        def transpose(self, x, axes):
            return x.permute(axes)

        def stack_on_zeroth_dimension(self, tensors):
            return mica.stack(tensors)

        def add_axes(self, x, n_axes, pos2len):
            for position in pos2len:
                x = x.unsqueeze(position)
            return x.expand([pos2len.get(axis, -1) for axis in range(n_axes)])

        def add_axis(self, x, new_position):
            return x.unsqueeze(new_position)

        def tile(self, x, repeats):
            return x.repeat(repeats)

        def concat(self, tensors, axis):
            return mica.cat(tensors, dim=axis)

        def is_float_type(self, x):
            return x.is_floating_point()

        def einsum(self, pattern, *x):
            return mica.einsum(pattern, *x)

    # einops finds the backends of loaded frameworks among the subclasses of its own.
    backends._mica_backend = MicaBackend


class _Watcher:
    """Waits in sys.meta_path for einops to be imported, and costs nothing until then."""

    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _register(module)

            spec.loader.exec_module = exec_module
        return spec


if _MODULE in sys.modules:
    _register(sys.modules[_MODULE])
else:
    sys.meta_path.insert(0, _Watcher())
