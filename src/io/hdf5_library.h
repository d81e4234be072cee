// The functions of the HDF5 library that are used here, found when the library is opened. Its headers are not needed:
// these functions have kept their form since version 1.10.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace mica::io {

using Hid = int64_t;  // names an object of the library; negative: none
using HSize = uint64_t;

struct Hdf5Library {
  void* handle = nullptr;
  int (*open)() = nullptr;
  Hid (*file_open)(const char*, unsigned, Hid) = nullptr;
  Hid (*file_create)(const char*, unsigned, Hid, Hid) = nullptr;
  int (*file_close)(Hid) = nullptr;
  int (*set_error_handler)(Hid, void*, void*) = nullptr;
  int (*link_exists)(Hid, const char*, Hid) = nullptr;
  std::ptrdiff_t (*name_by_index)(Hid, const char*, int, int, HSize, char*, size_t, Hid) = nullptr;
  Hid (*dataset_open)(Hid, const char*, Hid) = nullptr;
  Hid (*dataset_create)(Hid, const char*, Hid, Hid, Hid, Hid, Hid) = nullptr;
  int (*dataset_close)(Hid) = nullptr;
  Hid (*dataset_space)(Hid) = nullptr;
  Hid (*dataset_type)(Hid) = nullptr;
  int (*dataset_read)(Hid, Hid, Hid, Hid, Hid, void*) = nullptr;
  int (*dataset_write)(Hid, Hid, Hid, Hid, Hid, const void*) = nullptr;
  Hid (*space_create)(int, const HSize*, const HSize*) = nullptr;
  int (*space_close)(Hid) = nullptr;
  int (*space_ndims)(Hid) = nullptr;
  int (*space_dims)(Hid, HSize*, HSize*) = nullptr;
  int (*space_select)(Hid, int, const HSize*, const HSize*, const HSize*, const HSize*) = nullptr;
  int (*type_close)(Hid) = nullptr;
  int (*type_class)(Hid) = nullptr;
  size_t (*type_size)(Hid) = nullptr;
  int (*type_sign)(Hid) = nullptr;
  int (*type_order)(Hid) = nullptr;
  Hid (*type_create)(int, size_t) = nullptr;
  Hid (*type_copy)(Hid) = nullptr;
  int (*type_set_size)(Hid, size_t) = nullptr;
  int (*type_set_fields)(Hid, size_t, size_t, size_t, size_t, size_t) = nullptr;
  int (*type_set_bias)(Hid, size_t) = nullptr;
  int (*type_insert)(Hid, const char*, size_t, Hid) = nullptr;
  Hid (*enum_create)(Hid) = nullptr;
  int (*enum_insert)(Hid, const char*, const void*) = nullptr;
  Hid (*list_create)(Hid) = nullptr;
  int (*list_close)(Hid) = nullptr;
  int (*make_groups)(Hid, unsigned) = nullptr;

  Hid constant(const char* name) const;  // a type or class that the library names by a variable
};

// The library, opened. Throws, and says what to install, where there is none. Hold the lock while using it: it does not
// support several threads.
const Hdf5Library& hdf5_library();
std::mutex& hdf5_lock();

}  // namespace mica::io
