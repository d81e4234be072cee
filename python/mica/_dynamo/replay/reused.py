"""The part of a snapshot that serves the next arguments too."""

from mica import _C


class Reused:
    """What a snapshot has that does not depend on the arguments, which is most of a model."""

    def __init__(self, snapshot):
        self._codes, self.records, self.seen = snapshot._codes, tuple(snapshot._records), dict(snapshot._seen)
        self._settings = snapshot._settings
        self.found, self.tensors = frozenset(snapshot._found), tuple(snapshot.tensors)
        self.places = snapshot._places
        self.compared = _C._Snapshot(self.records)

    def holds(self, observation, places):
        if places != self.places or observation.settings != self._settings:
            return False
        codes = observation.codes
        same = self._codes.keys() == codes.keys() and all(names is codes[code] for code, names in self._codes.items())
        return same and self.compared.first_difference() < 0
