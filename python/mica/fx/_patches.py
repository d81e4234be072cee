"""Changes that a tracer makes while it runs a function: they are taken back."""


class Patches:
    """Changes of attributes that are undone at the end of a block."""

    def __init__(self):
        self._undo = []

    def item(self, table, name, value):
        missing = object()
        before = table.get(name, missing)

        def undo():
            if before is missing:
                table.pop(name, None)
            else:
                table[name] = before

        self._undo.append(undo)
        table[name] = value

    def attribute(self, owner, name, value):
        own = name in vars(owner)
        before = vars(owner).get(name)
        self._undo.append(lambda: setattr(owner, name, before) if own else delattr(owner, name))
        setattr(owner, name, value)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for undo in reversed(self._undo):
            undo()
