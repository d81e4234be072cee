#pragma once

#include "object.h"

namespace mica::python {

bool add_extension_api(PyObject* module);

}  // namespace mica::python
