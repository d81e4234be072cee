#include "io/hdf5_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "mica/error.h"
#include "mica/core/fork.h"

namespace mica::io {

namespace {

std::mutex library_lock;
HeldOverFork library_held(library_lock, LockOrder::Files);

template <class Function>
void find(void* handle, const char* name, Function*& to, std::string& missing) {
  to = reinterpret_cast<Function*>(dlsym(handle, name));
  if (!to) missing += std::string(" ") + name;
}

Hdf5Library open_library() {
  Hdf5Library h;
  std::string tried;
  const auto open = [&](const char* path) {
    h.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!h.handle) tried += std::string("\n  ") + path + ": " + dlerror();
  };
  if (const char* chosen = std::getenv("MICA_HDF5"); chosen && *chosen) {
    open(chosen);
  } else {
    for (const char* path : {"libhdf5.so", "libhdf5_serial.so", "libhdf5_serial.so.103", "libhdf5.so.103",
                             "libhdf5_serial.so.310", "libhdf5.so.310"})
      if (!h.handle) open(path);
  }
  MICA_CHECK(h.handle,
             "HDF5 files need the HDF5 library, and none was found. Install it (Debian: libhdf5-103), or name ",
             "its file in MICA_HDF5. Tried:", tried);
  std::string missing;
  find(h.handle, "H5open", h.open, missing);
  find(h.handle, "H5Fopen", h.file_open, missing);
  find(h.handle, "H5Fcreate", h.file_create, missing);
  find(h.handle, "H5Fclose", h.file_close, missing);
  find(h.handle, "H5Eset_auto2", h.set_error_handler, missing);
  find(h.handle, "H5Lexists", h.link_exists, missing);
  find(h.handle, "H5Lget_name_by_idx", h.name_by_index, missing);
  find(h.handle, "H5Dopen2", h.dataset_open, missing);
  find(h.handle, "H5Dcreate2", h.dataset_create, missing);
  find(h.handle, "H5Dclose", h.dataset_close, missing);
  find(h.handle, "H5Dget_space", h.dataset_space, missing);
  find(h.handle, "H5Dget_type", h.dataset_type, missing);
  find(h.handle, "H5Dread", h.dataset_read, missing);
  find(h.handle, "H5Dwrite", h.dataset_write, missing);
  find(h.handle, "H5Screate_simple", h.space_create, missing);
  find(h.handle, "H5Sclose", h.space_close, missing);
  find(h.handle, "H5Sget_simple_extent_ndims", h.space_ndims, missing);
  find(h.handle, "H5Sget_simple_extent_dims", h.space_dims, missing);
  find(h.handle, "H5Sselect_hyperslab", h.space_select, missing);
  find(h.handle, "H5Tclose", h.type_close, missing);
  find(h.handle, "H5Tget_class", h.type_class, missing);
  find(h.handle, "H5Tget_size", h.type_size, missing);
  find(h.handle, "H5Tget_sign", h.type_sign, missing);
  find(h.handle, "H5Tget_order", h.type_order, missing);
  find(h.handle, "H5Tcreate", h.type_create, missing);
  find(h.handle, "H5Tcopy", h.type_copy, missing);
  find(h.handle, "H5Tset_size", h.type_set_size, missing);
  find(h.handle, "H5Tset_fields", h.type_set_fields, missing);
  find(h.handle, "H5Tset_ebias", h.type_set_bias, missing);
  find(h.handle, "H5Tinsert", h.type_insert, missing);
  find(h.handle, "H5Tenum_create", h.enum_create, missing);
  find(h.handle, "H5Tenum_insert", h.enum_insert, missing);
  find(h.handle, "H5Pcreate", h.list_create, missing);
  find(h.handle, "H5Pclose", h.list_close, missing);
  find(h.handle, "H5Pset_create_intermediate_group", h.make_groups, missing);
  MICA_CHECK(missing.empty(), "the HDF5 library lacks", missing, "; name another one in MICA_HDF5");
  MICA_CHECK(h.open() >= 0, "the HDF5 library could not be started");
  h.set_error_handler(0, nullptr, nullptr);  // errors are reported here, not printed
  return h;
}

}  // namespace

Hid Hdf5Library::constant(const char* name) const {
  const auto* const variable = static_cast<const Hid*>(dlsym(handle, name));
  MICA_CHECK(variable, "the HDF5 library has no ", name);
  return *variable;
}

const Hdf5Library& hdf5_library() {
  static const Hdf5Library* const library = new Hdf5Library(open_library());
  return *library;
}

std::mutex& hdf5_lock() { return library_lock; }

}  // namespace mica::io
