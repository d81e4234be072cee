"""Functions and files that pipes are given: checks, lists of paths, streams that close themselves."""

import collections.abc
import fnmatch
import functools
import importlib.util
import inspect
import io
import os
import warnings
from typing import ClassVar

__all__ = [
    "StreamWrapper",
    "get_file_binaries_from_pathnames",
    "get_file_pathnames_from_root",
    "match_masks",
    "validate_input_col",
    "validate_pathname_binary_tuple",
]


def validate_input_col(fn, input_col):
    """Refuse a function that cannot be called with one argument for each column."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:  # of a function in C, which does not tell
        return
    wanted = len(input_col) if isinstance(input_col, (list, tuple)) else 1
    kinds = inspect.Parameter
    positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is kinds.VAR_POSITIONAL for p in parameters)
    needed_names = [p for p in parameters if p.kind is kinds.KEYWORD_ONLY and p.default is p.empty]
    inner = fn.func if isinstance(fn, functools.partial) else fn
    name = getattr(inner, "__name__", repr(inner))
    if needed_names:
        raise ValueError(
            f"The function {name} takes {len(needed_names)} non-default keyword-only parameters, which is not allowed."
        )
    if len(parameters) < wanted and not takes_any:
        raise ValueError(f"The function {name} takes {len(parameters)} parameters, but {wanted} are required.")
    missing = any(p.default is p.empty for p in positional[wanted:])
    if missing or (len(positional) < wanted and not takes_any):
        raise ValueError(
            f"The function {name} takes {len(positional)} positional parameters, but {wanted} are required."
        )


def _is_local(fn):
    code = getattr(fn, "__code__", None)
    if code is not None:
        return bool(code.co_flags & inspect.CO_NESTED)
    return "<locals>" in getattr(fn, "__qualname__", type(fn).__qualname__)


def _check_unpickable_fn(fn):
    """Warn of a function that workers could not be sent."""
    if not callable(fn):
        raise TypeError(f"A callable function is expected, but {type(fn)} is provided.")
    if isinstance(fn, functools.partial):
        fn = fn.func
    is_lambda = getattr(fn, "__name__", None) == "<lambda>"
    if (_is_local(fn) or is_lambda) and importlib.util.find_spec("dill") is None:
        kind = "Local" if _is_local(fn) else "Lambda"
        warnings.warn(
            f"{kind} function is not supported by pickle, please use regular python function or functools.partial "
            "instead.",
            stacklevel=3,
        )


def match_masks(name, masks):
    """Whether a name matches one of the masks; no masks match every name."""
    if not masks:
        return True
    return any(fnmatch.fnmatch(name, mask) for mask in ([masks] if isinstance(masks, str) else masks))


def get_file_pathnames_from_root(root, masks, recursive=False, abspath=False, non_deterministic=False):
    """The paths of files in a folder, in order."""
    if os.path.isfile(root):
        if match_masks(os.path.basename(root), masks):
            yield os.path.abspath(root) if abspath else root
        return

    def refuse(error):
        warnings.warn(f"{error.filename} : {error.strerror}", stacklevel=2)
        raise error

    for path, folders, files in os.walk(root, onerror=refuse):
        if not non_deterministic:
            files.sort()
            folders.sort()  # os.walk goes on in this order
        place = os.path.abspath(path) if abspath else path
        yield from (os.path.join(place, file) for file in files if match_masks(file, masks))
        if not recursive:
            return


def get_file_binaries_from_pathnames(pathnames, mode, encoding=None):
    """(path, open file) for each path."""
    if not isinstance(pathnames, collections.abc.Iterable):
        pathnames = [pathnames]
    if mode in ("b", "t"):
        mode = "r" + mode
    for pathname in pathnames:
        if not isinstance(pathname, str):
            raise TypeError(f"Expected string type for pathname, but got {type(pathname)}")
        yield pathname, StreamWrapper(open(pathname, mode, encoding=encoding))  # noqa: SIM115 - the wrapper closes it


def validate_pathname_binary_tuple(data):
    """Refuse what is not a (path, stream)."""
    if not isinstance(data, tuple):
        raise TypeError(f"pathname binary data should be tuple type, but it is type {type(data)}")
    if len(data) != 2:
        raise TypeError(f"pathname binary stream tuple length should be 2, but got {len(data)}")
    if not isinstance(data[0], str):
        raise TypeError(f"pathname within the tuple should have string type pathname, but it is type {type(data[0])}")
    if not isinstance(data[1], (io.IOBase, StreamWrapper)):
        raise TypeError(
            f"binary stream within the tuple should have IOBase orits subclasses as type, but it is type {type(data[1])}"
        )


# Method names that warn when they are used: torchdata adds its own.
_iter_deprecated_functional_names = {}
_map_deprecated_functional_names = {}


def _deprecation_warning(
    old_class_name,
    *,
    deprecation_version,
    removal_version,
    old_functional_name="",
    old_argument_name="",
    new_class_name="",
    new_functional_name="",
    new_argument_name="",
    deprecate_functional_name_only=False,
):
    """Warn that a pipe, one of its arguments or only its method's name is no longer to be used, and say what is."""
    subject = f"`{old_class_name}()`"
    if old_functional_name and deprecate_functional_name_only:
        subject += f"'s functional API `.{old_functional_name}()` is"
    elif old_functional_name:
        subject += f" and its functional API `.{old_functional_name}()` are"
    elif old_argument_name:
        subject = f"The argument `{old_argument_name}` of {subject} is"
    else:
        subject += " is"
    message = (
        f"{subject} deprecated since {deprecation_version} and will be removed in {removal_version}."
        "\nSee https://github.com/pytorch/data/issues/163 for details."
    )
    instead = [f"`{new_class_name}()`"] if new_class_name else []
    instead += [f"`.{new_functional_name}()`"] if new_functional_name else []
    if instead:
        message += f"\nPlease use {' or '.join(instead)} instead."
    if new_argument_name:
        message += f"\nPlease use `{old_class_name}({new_argument_name}=)` instead."
    warnings.warn(message, FutureWarning, stacklevel=3)


class StreamWrapper:
    """A stream that is closed when nobody holds it, or when all streams that were made from it are closed."""

    session_streams: ClassVar[dict] = {}
    debug_unclosed_streams = False

    def __init__(self, file_obj, parent_stream=None, name=None):
        self.file_obj = file_obj
        self.child_counter = 0
        self.parent_stream = parent_stream
        self.close_on_last_child = False
        self.name = name
        self.closed = False
        if parent_stream is not None:
            if not isinstance(parent_stream, StreamWrapper):
                raise RuntimeError(f"Parent stream should be StreamWrapper, {type(parent_stream)} was given")
            parent_stream.child_counter += 1
        if StreamWrapper.debug_unclosed_streams:
            StreamWrapper.session_streams[self] = 1

    @classmethod
    def close_streams(cls, v, depth=0):
        """Close the streams within lists, tuples and dicts, up to ten levels down."""
        if depth > 10:
            return
        if isinstance(v, StreamWrapper):
            v.close()
        elif isinstance(v, (dict, list, tuple)):
            for each in v.values() if isinstance(v, dict) else v:
                cls.close_streams(each, depth + 1)

    def __getattr__(self, name):
        return getattr(self.__dict__["file_obj"], name)

    def close(self, *args, **kwargs):
        if self.closed:
            return
        StreamWrapper.session_streams.pop(self, None)
        parent = self.parent_stream
        if parent is not None:
            parent.child_counter -= 1
            if parent.child_counter == 0 and parent.close_on_last_child:
                parent.close()
        if hasattr(self.file_obj, "close"):
            self.file_obj.close(*args, **kwargs)
        self.closed = True

    def autoclose(self):
        """Close when the last child is closed; at once if there is none."""
        self.close_on_last_child = True
        if self.child_counter == 0:
            self.close()

    def __dir__(self):
        return list({*self.__dict__, *StreamWrapper.__dict__, *dir(self.file_obj)})

    def __del__(self):
        if not self.__dict__.get("closed", True):
            self.close()

    def __iter__(self):
        yield from self.file_obj

    def __next__(self):
        return next(self.file_obj)

    def __repr__(self):
        return f"StreamWrapper<{'' if self.name is None else f'{self.name},'}{self.file_obj!r}>"

    def __getstate__(self):
        return self.file_obj

    def __setstate__(self, obj):
        self.__init__(obj)
