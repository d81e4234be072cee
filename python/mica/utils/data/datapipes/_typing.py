"""The metaclasses of pipes."""

from abc import ABCMeta

from mica.utils.data.datapipes._hook_iterator import hook_iterator, hook_reset

GenericMeta = ABCMeta


class _DataPipeMeta(GenericMeta):
    """The metaclass of every pipe."""


class _IterDataPipeMeta(_DataPipeMeta):
    """Lets a stream have one valid iterator, and resets the stream when one is made."""

    def __new__(cls, name, bases, namespace, **kwargs):
        if "reset" in namespace:
            namespace["reset"] = hook_reset(namespace["reset"])
        if "__iter__" in namespace:
            hook_iterator(namespace)
        return super().__new__(cls, name, bases, namespace, **kwargs)
