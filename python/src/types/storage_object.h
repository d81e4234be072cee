// UntypedStorage objects, for the files that make or read storages.
#pragma once

#include "mica/core/storage.h"
#include "mica/tensor.h"
#include "object.h"

namespace mica::python {

PyObject* storage_object(const Storage& storage);  // a new reference; a storage has one object
bool is_storage(PyObject* o);
const Storage& storage_of(PyObject* o);
DimVector dims_from_object(PyObject* o);  // reads a sequence of integers; throws for anything else

bool add_archive(PyObject* module);               // the containers of checkpoint files
bool add_checkpoint_functions(PyObject* module);  // other functions for saving and loading
bool add_shared_memory(PyObject* module);         // batches that processes hand to each other

}  // namespace mica::python
