"""A package's files as a tree."""

from mica.package.glob_group import GlobGroup

__all__ = ["Directory"]


class Directory:
    """A folder, or a file, of a package."""

    def __init__(self, name, is_dir):
        self.name, self.is_dir = name, is_dir
        self.children = {}

    def _add_file(self, path):
        *folders, file = path.split("/")
        place = self
        for each in folders:
            place = place.children.setdefault(each, Directory(each, True))
        place.children[file] = Directory(file, False)

    def has_file(self, filename):
        """Whether there is a file of this path."""
        place = self
        for each in filename.split("/"):
            place = place.children.get(each)
            if place is None:
                return False
        return True

    def _lines(self, indent):
        children = sorted(self.children.values(), key=lambda each: (not each.is_dir, each.name))
        for i, each in enumerate(children):
            last = i == len(children) - 1
            yield f"{indent}{'└── ' if last else '├── '}{each.name}"
            yield from each._lines(indent + ("    " if last else "│   "))

    def __str__(self):
        head = "─── " if not self.is_dir or self.children else ""
        return "\n".join([head + self.name, *self._lines("    ")]) + "\n"


def directory_of(name, paths, include="**", exclude=()):
    """The tree of the files whose paths match."""
    wanted = GlobGroup(include, exclude=exclude, separator="/")
    top = Directory(name, True)
    for path in paths:
        if wanted.matches(path):
            top._add_file(path)
    return top
