// mica.inspect's part of the module.
#pragma once

#include "object.h"

namespace mica::python {

bool add_inspect(PyObject* module);
void watch_places();  // tells the engine which line of the program runs

}  // namespace mica::python
