// What a replayed function has read (snapshot.cpp), for those who replay calls in C.
#pragma once

#include "object.h"

namespace mica::python {

bool is_snapshot(PyObject* object);
bool snapshot_holds(PyObject* snapshot);  // nothing that it has records of is another now

}  // namespace mica::python
