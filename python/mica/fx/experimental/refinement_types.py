"""What is known of sizes that have no numbers yet."""

__all__ = ["Equality"]


class Equality:
    """Two sizes are equal."""

    def __init__(self, lhs, rhs):
        self.lhs = lhs
        self.rhs = rhs

    def __eq__(self, other):
        return isinstance(other, Equality) and self.lhs == other.lhs and self.rhs == other.rhs

    def __hash__(self):
        return hash((Equality, self.lhs, self.rhs))

    def __repr__(self):
        return f"{self.lhs} = {self.rhs}"
