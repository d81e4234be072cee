"""Where in a model a computation stands: ModuleTracker."""

import weakref

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """A with block in which `parents` is the set of names of the modules that are running.

    "Global" is always among them; names begin with the name of the class of the outermost module. A module's name stays
    in the set while gradients are computed through it, and `is_bw` is then true.
    """

    def __init__(self):
        self.parents, self.is_bw = {"Global"}, False
        self._names, self._handles = weakref.WeakKeyDictionary(), []

    def _name(self, module):
        if module not in self._names:
            root = type(module).__name__
            for name, child in module.named_modules():
                if child not in self._names:
                    self._names[child] = f"{root}.{name}" if name else root
        return self._names[module]

    def _before(self, module, arguments):
        name = self._name(module)
        self.parents.add(name)
        self._watch(arguments, lambda: self.parents.discard(name))

    def _after(self, module, arguments, result):
        name = self._name(module)
        self.parents.discard(name)

        def entered():
            self.is_bw = True
            self.parents.add(name)

        self._watch(result, entered)

    def _watch(self, values, call):
        """Calls when the gradients of all of the tensors are there."""
        from mica.autograd.graph import register_multi_grad_hook
        from mica.utils._pytree import tree_leaves

        tensors = [v for v in tree_leaves(values) if getattr(v, "requires_grad", False)]
        if tensors:
            self._handles.append(register_multi_grad_hook(tensors, lambda grads: call()))

    def __enter__(self):
        from mica.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        self._handles += [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after),
        ]
        return self

    def __exit__(self, *exception):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.parents, self.is_bw = {"Global"}, False
