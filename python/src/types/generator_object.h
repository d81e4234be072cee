// torch.Generator.
#pragma once

#include <optional>

#include "mica/device.h"
#include "mica/generator.h"
#include "object.h"

namespace mica::python {

struct GeneratorObject {
  PyObject_HEAD Generator generator;
  Device device;
};
extern PyTypeObject* generator_type;
inline bool is_generator(PyObject* o) { return PyObject_TypeCheck(o, generator_type); }
inline const Generator& generator_of_object(PyObject* o) { return reinterpret_cast<GeneratorObject*>(o)->generator; }

// A number or an integer tensor as 64 bits, as seeds are taken: negative ones wrap around.
uint64_t seed_from_object(PyObject* o);

}  // namespace mica::python
