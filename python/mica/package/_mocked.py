"""What stands in a package for a module that was mocked: its names can be imported, and use is an error."""

# Written into the package as _mock.py, and imported there by each mocked module.
OBJECTS = '''"""Names of modules that were left out of this package."""


class MockedObject:
    """A name of a module that was left out: whoever uses it is told so."""

    def __init__(self, name):
        self.__dict__["_name"] = name

    def _refuse(self, *args, **kwargs):
        name = self.__dict__["_name"]
        raise NotImplementedError(
            f"Object '{name}' was mocked out during packaging but it is being used in a way that needs it"
        )

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return MockedObject(self.__dict__["_name"] + "." + name)

    def __mro_entries__(self, bases):
        return ()

    __call__ = __getitem__ = __setitem__ = __iter__ = __len__ = __contains__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __matmul__ = __enter__ = _refuse
'''

MODULE = """from _mock import MockedObject

__all__ = []


def __getattr__(attr):
    if attr.startswith("__") and attr.endswith("__"):
        raise AttributeError(attr)
    return MockedObject(__name__ + "." + attr)
"""
