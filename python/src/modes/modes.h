#pragma once

#include <string>

#include "object.h"

namespace mica::python {

bool add_modes(PyObject* module);
bool add_recording(PyObject* module);   // compiled functions: recording.cpp
bool add_snapshots(PyObject* module);   // what a replayed function has read: snapshot.cpp
bool add_replay(PyObject* module);      // what a replayed call asks for: replay.cpp
bool add_call_list(PyObject* module);   // calls that are made again without Python: call_list.cpp
bool add_known_call(PyObject* module);  // calls of functions that have such a list: known_call.cpp
std::string describe_python_stack();    // the stack of the calling thread, as traceback prints it

}  // namespace mica::python
