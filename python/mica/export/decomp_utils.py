"""The table of decompositions that a program starts from to change it."""

from mica.export._core import DecompositionTable, core_table

__all__ = ["CustomDecompTable"]


class CustomDecompTable(DecompositionTable):
    """Operators and the functions that take them apart, at first all those of `default_decompositions()`."""

    def __init__(self):
        super().__init__(core_table())

    def copy(self):
        made = CustomDecompTable()
        made.clear()
        made.update(self)
        return made
