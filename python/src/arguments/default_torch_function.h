// The __torch_function__ that subclasses of Tensor inherit: it computes with plain tensors and returns the subclass.
#pragma once

#include "object.h"

namespace mica::python {

// While an object of this class lives, no argument of this thread is asked for its __torch_function__.
class SubclassesDisabled {
 public:
  SubclassesDisabled();
  SubclassesDisabled(const SubclassesDisabled&) = delete;
  SubclassesDisabled& operator=(const SubclassesDisabled&) = delete;
  ~SubclassesDisabled();

 private:
  bool saved_;
};

PyObject* default_torch_function(PyObject* cls, PyObject* args, PyObject* kwargs);

}  // namespace mica::python
