#pragma once

#include "object.h"

namespace mica::python {

bool add_weight_only_functions(PyObject* module);  // products with packed 4-bit weights

}  // namespace mica::python
