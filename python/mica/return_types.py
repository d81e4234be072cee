"""The named tuples that operations with several results return: mica.return_types.sort and its like."""

from mica._C import _return_type


def __getattr__(name):
    return _return_type(name)
