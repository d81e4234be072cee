"""A backend that is not there. A program may name it; using it raises an error that says what to do."""


class MissingBackend:
    supports_splitting = supports_coalescing = supports_time_estimate = False

    def __init__(self, name, advice):
        self._name, self._advice = name, advice

    def name(self):
        return self._name

    def set_timeout(self, timeout):
        pass

    def abort(self, why=""):
        pass

    shutdown = abort

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(f"the backend {self._name!r} is not here: {self._advice}")
