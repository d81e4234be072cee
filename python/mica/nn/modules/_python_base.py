"""The base of Module in Python, for an extension that has none."""


class ModuleBase:
    __slots__ = ()

    def __call__(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def __getattr__(self, name):
        own = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            members = own.get(kind)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        if self._set_registered(name, value) is NotImplemented:
            super().__setattr__(name, value)
