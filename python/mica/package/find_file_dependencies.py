"""The modules that a source file imports."""

import ast
import importlib.util

__all__ = ["find_files_source_depends_on"]


class _Imports(ast.NodeVisitor):
    def __init__(self, package):
        self.package = package
        self.found = {}

    def _absolute(self, name, level):
        return importlib.util.resolve_name("." * level + (name or ""), self.package) if level else name

    def visit_Import(self, node):
        for each in node.names:
            self.found[each.name, None] = True

    def visit_ImportFrom(self, node):
        module = self._absolute(node.module, node.level)
        for each in node.names:
            self.found[module, None if each.name == "*" else each.name] = True

    def visit_Call(self, node):
        self.generic_visit(node)
        if getattr(node.func, "id", None) != "__import__" or not node.args:
            return
        names = ("name", "globals", "locals", "fromlist", "level")
        given = dict(zip(names, node.args, strict=False)) | {each.arg: each.value for each in node.keywords}
        try:
            name, level, listed = (
                ast.literal_eval(given[key]) if key in given else default
                for key, default in (("name", None), ("level", 0), ("fromlist", ()))
            )
        except ValueError:  # computed as the program runs
            return
        name = self._absolute(name, level)
        for each in listed:
            self.found[name, None if each == "*" else each] = True
        if not listed:
            self.found[name, None] = True
            self.found[name.rpartition(".")[0] or name, None] = True


def find_files_source_depends_on(src, package):
    """(module, name or None) of everything that the source imports; `package` is what relative imports start from."""
    visitor = _Imports(package)
    visitor.visit(ast.parse(src))
    return list(visitor.found)
