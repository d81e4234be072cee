"""functools.wraps, without the modules that come with functools: an import of Mica takes them from nobody."""


def wraps(function):
    """Give the function below the names, the text and the attributes of another, as functools.wraps does."""

    def take_over(wrapper):
        for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
            if hasattr(function, name):
                setattr(wrapper, name, getattr(function, name))
        wrapper.__dict__.update(function.__dict__)
        wrapper.__wrapped__ = function
        return wrapper

    return take_over
