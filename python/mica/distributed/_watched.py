"""Watchers of collectives: functions that get the name of torch's operator."""

watchers = []
_stands_for = []


def note(name):
    """Tells the watchers of a collective: by the operator that calls it, if one has said so."""
    called = _stands_for[-1] if _stands_for else f"c10d::{name}_"
    for watcher in list(watchers):
        watcher(called)


class standing_for:
    """A block in which watchers see collectives under the name of another operator, such as `c10d_functional::all_reduce`."""

    def __init__(self, name):
        self._name = name

    def __enter__(self):
        _stands_for.append(self._name)

    def __exit__(self, *error):
        _stands_for.pop()
