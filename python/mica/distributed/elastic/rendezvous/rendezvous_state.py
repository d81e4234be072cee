"""Who takes part in a rendezvous, and how that changes: pure rules over a value that all machines share.

Machines have clocks that differ. So the state holds no times: a machine shows that it lives by counting, and every other
measures by its own clock how long that count has stood still.
"""

import json
import time
from dataclasses import asdict, dataclass, field

from mica.distributed.elastic.rendezvous.api import RendezvousStateError


@dataclass
class State:
    """The state of a run's rendezvous. A round is complete when its machines are fixed; others then wait for the next one."""

    round: int = 0
    complete: bool = False
    size: int = 0  # machines of the round when it was complete; some may have been dropped since
    closed: bool = False
    why_closed: str = ""
    participants: dict[str, int] = field(default_factory=dict)  # ranks, -1 before the round is complete
    waiting: list[str] = field(default_factory=list)
    beats: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(data):
        try:
            return State(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise RendezvousStateError("The rendezvous state is corrupt. See inner exception for details.") from error

    def bytes(self):
        return json.dumps(asdict(self), sort_keys=True).encode()

    def drop(self, node):
        """A machine has left or died."""
        self.participants.pop(node, None)
        self.beats.pop(node, None)
        if node in self.waiting:
            self.waiting.remove(node)
        if self.complete and not self.participants:
            self.begin_round()

    def begin_round(self):
        """Begin the next round with the machines that wait, because no machine of the last round is left."""
        self.round, self.complete = self.round + 1, False
        self.participants, self.waiting = dict.fromkeys(self.waiting, -1), []

    def join(self, node):
        """A machine wants to take part in the next round."""
        if self.complete and node in self.participants and len(self.participants) < self.size:
            self.drop(node)  # a round that has lost a machine before this one began cannot begin any more
        self.beats.setdefault(node, 0)
        if not self.complete:
            self.participants.setdefault(node, -1)
        elif node not in self.participants and node not in self.waiting:
            self.waiting.append(node)

    def finish(self):
        """Fix the machines of this round, and give them their ranks."""
        self.complete, self.size = True, len(self.participants)
        self.participants = {node: rank for rank, node in enumerate(sorted(self.participants))}


class Watch:
    """What one machine has seen of the others' counts, and when, by its own clock."""

    def __init__(self, patience):
        self._patience, self._seen, self._looked = patience, {}, 0.0
        self._members, self._since = None, 0.0

    def dead(self, state, own):
        """The machines whose count has stood still for too long. Who has not looked for long itself cannot tell: its own
        machine may have stood still, and all others with it."""
        now = time.monotonic()
        rested, self._looked = now - self._looked > self._patience / 2, now
        if rested:
            self._seen = {node: (count, now) for node, (count, _) in self._seen.items()}
        self._seen = {node: seen for node, seen in self._seen.items() if node in state.beats}
        found = []
        for node, count in state.beats.items():
            last, when = self._seen.get(node, (None, now))
            if count != last:
                self._seen[node] = (count, now)
            elif node != own and now - when > self._patience:
                found.append(node)
        return found

    def forget(self, nodes):
        """Forget the counts of machines that were dropped: if one comes back, its count begins anew and may be the same."""
        for node in nodes:
            self._seen.pop(node, None)

    def unchanged_for(self, state):
        """For how long the same machines have been there, in seconds."""
        members, now = (state.round, frozenset(state.participants)), time.monotonic()
        if members != self._members:
            self._members, self._since = members, now
        return now - self._since
