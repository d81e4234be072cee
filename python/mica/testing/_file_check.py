"""Whether a text has what a test expects, in the order in which it is expected."""

import re

__all__ = ["FileCheck"]


class FileCheck:
    """Expectations of a text: each method adds one and returns the object, and `run` looks for them from the top down.

    >>> FileCheck().check("linear").check_not("relu").check("sum").run("linear(x); sum(x)")
    """

    def __init__(self):
        self._checks = []  # (kind, text, number, whether there are no more)

    def _add(self, kind, text, number=1, exactly=False):
        if not isinstance(text, str):
            raise TypeError(f"FileCheck: expected a text to look for, but got {type(text).__name__}")
        self._checks.append((kind, text, number, exactly))
        return self

    def check(self, text):
        """The text comes next, wherever."""
        return self._add("", text)

    def check_not(self, text):
        """The text is not there between the expectation before this one and that behind it."""
        return self._add("NOT", text)

    def check_same(self, text):
        """The text follows on the same line."""
        return self._add("SAME", text)

    def check_next(self, text):
        """The text is on the next line."""
        return self._add("NEXT", text)

    def check_count(self, text, count, exactly=False):
        """The text comes so often; with `exactly`, and not once more behind that."""
        if not isinstance(count, int) or count < 0 or (count == 0 and not exactly):
            raise RuntimeError(f"FileCheck: a number above zero is expected, but got {count}")
        return self._add("COUNT", text, count, exactly)

    def check_dag(self, text):
        """The text is there; neighbours of this kind come in any order."""
        return self._add("DAG", text)

    def check_regex(self, text):
        """A regular expression matches next."""
        re.compile(text)
        return self._add("REGEX", text)

    def check_source_highlighted(self, text):
        """The text comes next, and the line below it marks all of it: ~~~~ or ~~~~ <--- HERE."""
        return self._add("SOURCE-HIGHLIGHTED", text)

    def run(self, text):
        """Raise RuntimeError unless the text is as expected."""
        text = str(text)
        if not self._checks:
            raise RuntimeError("FileCheck: nothing is expected. Forgot to call check()?")
        end, refused, i = 0, [], 0
        while i < len(self._checks):
            kind = self._checks[i][0]
            if kind == "NOT":
                refused.append(self._checks[i])
                i += 1
                continue
            last = i + 1
            while kind == "DAG" and last < len(self._checks) and self._checks[last][0] == "DAG":
                last += 1
            places = [self._place(text, end, each) for each in self._checks[i:last]]
            self._refuse(text, end, min(start for start, _ in places), refused)
            end, refused, i = max(stop for _, stop in places), [], last
        self._refuse(text, end, len(text), refused)

    def _place(self, text, start, check):
        """(start, end) of what one expectation finds behind a place."""
        kind, wanted, number, exactly = check
        if kind == "REGEX":
            found = re.compile(wanted).search(text, start)
            if found is None:
                _fail(
                    f"Expected to find a match of the regular expression {wanted!r} but did not find it",
                    text,
                    start,
                    check,
                )
            return found.span()
        if kind == "COUNT":
            first = end = None
            for _ in range(number):
                at = self._found(text, start if end is None else end, wanted, check)
                first, end = at if first is None else first, at + len(wanted)
            first, end = (start, start) if first is None else (first, end)
            if exactly and (again := text.find(wanted, end)) >= 0:
                _fail(f'Expected to not find "{wanted}" but found it', text, again, check)
            return first, end
        at = self._found(text, start, wanted, check)
        between = text[start:at]
        if kind == "SAME" and "\n" in between:
            _fail(f'Expected to find "{wanted}" on the same line but a line ends before it', text, start, check)
        if kind == "NEXT" and between.count("\n") != 1:
            where = "the same line" if "\n" not in between else "a later line"
            _fail(f'Expected to find "{wanted}" on the next line but it is on {where}', text, start, check)
        if kind == "SOURCE-HIGHLIGHTED":
            self._marked(text, at, wanted, check)
        return at, at + len(wanted)

    @staticmethod
    def _found(text, start, wanted, check):
        at = text.find(wanted, start)
        if at < 0:
            _fail(f'Expected to find "{wanted}" but did not find it', text, start, check)
        return at

    @staticmethod
    def _refuse(text, start, end, refused):
        for check in refused:
            at = text.find(check[1], start, end)
            if at >= 0:
                _fail(f'Expected to not find "{check[1]}" but found it', text, at, check)

    @staticmethod
    def _marked(text, at, wanted, check):
        begin = text.rfind("\n", 0, at) + 1
        below = text.find("\n", at)
        line = "" if below < 0 else text[below + 1 :].split("\n", 1)[0]
        if line[at - begin : at - begin + len(wanted)] != "~" * len(wanted):
            _fail(f'Expected to find "{wanted}" highlighted but it is not', text, at, check)


def _fail(reason, text, at, check):
    kind = f"CHECK-{check[0]}" if check[0] else "CHECK"
    around = text[max(at - 60, 0) : at + 300]
    raise RuntimeError(f"{reason}\nSearched string:\n{around}\nFrom {kind}: {check[1]}\n")
