"""Tables of measurements, side by side."""

import enum
import math

from mica.utils.benchmark.measurement import Measurement, ordered_unique, select_unit, trim_sigfig, unit_to_english

_GREEN, _RED, _BOLD, _END = "\033[92m", "\033[31m", "\033[1m", "\033[0m\033[0m"


class Colorize(enum.Enum):
    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


def _colored(text, value, best):
    if value <= max(best * 1.01, best + 100e-9):
        return _GREEN + _BOLD + text + _END
    if value <= best * 1.1:
        return _GREEN + text + _END
    if value > best * 5:
        return _RED + _BOLD + text + _END
    return _RED + text + _END if value > best * 2 else text


class _Table:
    """The measurements of one label: a row for each (threads, env, name), a column for each description."""

    def __init__(self, results, colorize, trim, highlight):
        self.results = {}
        for each in results:
            self.results[self._row(each), each.description] = each
        self.rows = sorted(ordered_unique(map(self._row, results)), key=lambda row: row[0])
        self.columns = ordered_unique(each.description for each in results)
        self.label = results[0].label
        self.unit, self.scale = select_unit(min(each.median for each in results))
        self.colorize, self.trim, self.highlight = colorize, trim, highlight
        self.with_env = any(each.task_spec.env is not None for each in results)

    @staticmethod
    def _row(each):
        return each.num_threads, each.task_spec.env, each.as_row_name

    def _value(self, each):
        value = each.median / self.scale
        return trim_sigfig(value, each.significant_figures) if self.trim else value

    def _column(self, column):
        """The cells of a column, all equally wide."""
        found = [self.results.get((row, column)) for row in self.rows]
        digits = 1
        if self.trim:
            there = [each for each in found if each is not None]
            last = min(math.floor(math.log10(self._value(each))) - each.significant_figures + 1 for each in there)
            digits = max(0, -last)
        texts = ["" if each is None else f"{self._value(each):.{digits}f}" for each in found]
        notes = [
            f" (! {each.iqr / each.median * 100:.0f}%)"
            if self.highlight and each is not None and each.has_warnings
            else ""
            for each in found
        ]
        width, note_width = max(map(len, texts)), max(map(len, notes))
        cells = [text.rjust(width) + note.ljust(note_width) for text, note in zip(texts, notes, strict=True)]
        total = max(len(column or ""), width + note_width)
        return (column or "").center(total), [cell.center(total) for cell in cells], found

    def render(self):
        columns = [self._column(each) for each in self.columns]
        names = [("" if not self.with_env else f"({row[1]})  ") + row[2] for row in self.rows]
        name_width = max(map(len, names)) + 6
        lines = [" " * name_width + "".join("  |  " + header for header, _, _ in columns)]
        width = max(map(len, lines))
        threads = None
        for i, row in enumerate(self.rows):
            if row[0] != threads:
                threads = row[0]
                head = f"{threads} threads: "
                lines.append(head + "-" * (width - len(head)))
            cells = []
            for _, texts, found in columns:
                text, each = texts[i], found[i]
                if each is not None and self.colorize != Colorize.NONE:
                    rivals = found if self.colorize == Colorize.COLUMNWISE else [other[2][i] for other in columns]
                    best = min(rival.median for rival in rivals if rival is not None)
                    text = _colored(text, each.median, best)
                cells.append("  |  " + text)
            lines.append(("      " + names[i]).ljust(name_width) + "".join(cells))
        label = f" {self.label} " if self.label else ""
        lines.insert(0, "[" + label.center(width - 2, "-") + "]")
        notes = ["", f"Times are in {unit_to_english(self.unit)}s ({self.unit})."]
        if self.highlight and any(each.has_warnings for each in self.results.values()):
            notes.append("(! XX%) Measurement has high variance, where XX is the IQR / median * 100.")
        return "\n".join([*lines, *notes, ""])


class Compare:
    """Prints measurements as tables: one for each label."""

    def __init__(self, results):
        self._results = []
        self.extend_results(results)
        self._trim_significant_figures = False
        self._colorize = Colorize.NONE
        self._highlight_warnings = False

    def __str__(self):
        return "\n".join(self._render())

    def extend_results(self, results):
        """Add measurements."""
        for each in results:
            if not isinstance(each, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(each)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self):
        """Show only digits that mean something."""
        self._trim_significant_figures = True

    def colorize(self, rowwise=False):
        """Mark the best and the worst, of each column or of each row."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self):
        """Mark measurements that vary much."""
        self._highlight_warnings = True

    def print(self):
        """Print the tables."""
        print(str(self))

    def _render(self):
        groups = {}
        for each in Measurement.merge(self._results):
            groups.setdefault(each.label, []).append(each)
        settings = (self._colorize, self._trim_significant_figures, self._highlight_warnings)
        return [_Table(group, *settings).render() for group in groups.values()]
