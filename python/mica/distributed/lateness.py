"""A rank that others wait for: after how long they say so, and where its program is meanwhile."""

import math
import os
import sys
import sysconfig
import threading

_LIBRARIES = tuple(
    folder + os.sep
    for folder in {
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
    }
)  # fmt: skip


def seconds_of(variable, otherwise):
    """The number of seconds in a variable of the environment."""
    text = os.environ.get(variable)
    if not text:
        return otherwise
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ValueError(f"{variable} is a number of seconds above 0, but it is {text!r}")
    return seconds


def _shown(frame):
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def where():
    """The line at which the main thread is: its own, not a library's, and the function that it is in further down."""
    inner = frame = sys._current_frames().get(threading.main_thread().ident)
    if frame is None:
        return "its end"
    while frame is not None and frame.f_code.co_filename.startswith((*_LIBRARIES, "<frozen")):
        frame = frame.f_back
    if frame is None or frame is inner:
        return _shown(inner)
    return f"{_shown(frame)}, which is in {inner.f_code.co_name} of {os.path.basename(inner.f_code.co_filename)}"


def answer_questions(group):
    """Starts the thread that answers; it sleeps until another rank asks, and ends with the group."""

    def serve():
        while group.wait_for_question():
            group.answer(where())

    _answering[id(group)] = threading.Thread(target=serve, name="mica-whereabouts", daemon=True)
    _answering[id(group)].start()


_answering = {}


def end_answers(group):
    """Waits for the thread of a group that was closed: none may be left when the interpreter ends."""
    if thread := _answering.pop(id(group), None):
        thread.join()
