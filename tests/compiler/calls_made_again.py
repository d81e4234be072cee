"""Compiled functions on the CPU whose calls C makes again: when that begins, and how many calls C has made."""

import mica as torch
from mica._dynamo import compiled_calls
from mica._dynamo.replay import calls

functional = torch.nn.functional

# With these a function is looked at from its first call on, however little it calls.
EARLY = (
    (compiled_calls, "CALLS_BEFORE_REPLAY", 1),
    (calls, "_CALLS_BEFORE", 0),
    (calls.LongLists, "fewest_calls", 1),
    (calls.Unasked, "plain_calls_of_each_kind", 0),
    (calls.Unasked, "fewest_functions", 0),
    (calls.Unasked, "records_of_each_function", 10**6),
    (calls.Unasked, "most_misses", 10**4),
)


class Block(torch.nn.Module):
    def __init__(self, width=8, dropout=0.0):
        super().__init__()
        self.norm, self.first = torch.nn.LayerNorm(width), torch.nn.Linear(width, 2 * width)
        self.second, self.dropout, self.scale = torch.nn.Linear(2 * width, width), torch.nn.Dropout(dropout), 1.0

    def forward(self, x):
        return x + self.dropout(self.second(functional.gelu(self.first(self.norm(x))))) * self.scale


def blocks(count=2, **options):
    torch.manual_seed(0)
    return torch.nn.Sequential(*[Block(**options) for _ in range(count)]).eval().requires_grad_(False)


def call_of(compiled):
    return getattr(compiled, "_compiled_call", None) or compiled.forward


def counts(compiled):
    return {each: each.count for each in call_of(compiled).known or ()}


def made_by_c(compiled):
    """How many calls C has made again by itself."""
    return sum(counts(compiled).values())


def reasons(compiled):
    replayed = call_of(compiled).replayed
    return "" if replayed is None else " ".join(replayed.reasons)


def agree(compiled, plain, count=6, make=lambda: torch.randn(3, 8)):
    """Compare calls for new values. Returns how many of them C has made by itself."""
    before = counts(compiled)
    for _ in range(count):
        x = make()
        other = x.clone()
        want, got = plain(x), compiled(other)
        assert torch.equal(want, got) and want.stride() == got.stride() and torch.equal(x, other)
    return sum(made - before.get(each, 0) for each, made in counts(compiled).items())
