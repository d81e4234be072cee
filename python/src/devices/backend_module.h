// Python's functions for backends: opening one, and the devices, memory and streams of those that are open.
#pragma once

#include "object.h"

namespace mica::python {

bool add_backends(PyObject* module);
bool add_streams(PyObject* module);  // streams_module.cpp: streams, events, graphs, pinned memory

}  // namespace mica::python
