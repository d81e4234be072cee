"""Calls of compiled functions that are replayed without Python.

A function that was seen to do the same several times is written down, and later calls do what is written: on a CPU the
calls on tensors that it made, on a GPU (mode="reduce-overhead") a CUDA graph. That is right as long as the function would do
the same again, so everything that it read must be known and unchanged:

- `observe.py` sees which functions of Python a call ran, and refuses what cannot be seen into;
- `state.py` takes a snapshot of what these functions can read: globals, closures, attributes, containers, classes, tensors;
  `names.py` says which names code asks for, `known_classes.py` which objects cannot change, `records.py` what is recorded;
- `structure.py` takes arguments and results apart;
- `likeness.py` says whether arguments are like those of a call that was captured;
- `call_lists.py` records the calls on tensors, and `cuda_graphs.py` captures graphs of a GPU's work;
- `calls.py` counts, captures and replays.

What cannot be shown to do the same again is not replayed: it runs as every compiled function does. docs/compiler_replay.md has
the rest.
"""

from mica._dynamo.replay.calls import Replayed, begin

__all__ = ["Replayed", "begin"]
