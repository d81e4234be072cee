"""A progress bar for programs without tqdm."""

import sys


class tqdm:
    """Shows how much is done: of an iterable, or by `update`."""

    def __init__(self, iterable=None, total=None, disable=None, desc="", **options):
        self._iterable, self.disable, self.desc, self.n = iterable, bool(disable), desc, 0
        self.total = (
            total if total is not None or iterable is None or not hasattr(iterable, "__len__") else len(iterable)
        )

    def __iter__(self):
        for item in self._iterable:
            yield item
            self.update(1)
        self.close()

    def update(self, n=1):
        self.n += n
        if not self.disable:
            part = f"{100 * self.n / self.total:.1f}%" if self.total else str(self.n)
            sys.stderr.write(f"\r{self.desc}{part}")

    def set_description(self, desc=None, refresh=True):
        self.desc = f"{desc}: " if desc else ""

    def set_postfix(self, *args, **values):
        """Does nothing: this bar shows no postfix."""

    def close(self):
        if not self.disable:
            sys.stderr.write("\n")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
