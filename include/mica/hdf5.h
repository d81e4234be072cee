// HDF5 files, through the HDF5 library, which is opened at its first use (MICA_HDF5 names its file; Debian:
// libhdf5-103).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mica/tensor.h"

namespace mica {

class Hdf5File {
 public:
  enum class Mode : uint8_t { Read, Create, Append };  // Create replaces a file that is there

  explicit Hdf5File(const std::string& path, Mode mode = Mode::Read);
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  // The names within a group, in alphabetical order; "a/b" is a path of groups.
  std::vector<std::string> names(const std::string& group = "/") const;
  bool has(const std::string& name) const;
  DimVector sizes(const std::string& dataset) const;
  DType dtype(const std::string& dataset) const;

  // The dataset, or the block of it that begins at `start` and has `count` elements along each dimension: only that is
  // read from the disk.
  Tensor read(const std::string& dataset) const;
  Tensor read(const std::string& dataset, IntArrayRef start, IntArrayRef count) const;

  // Writes a new dataset and makes the groups on its path; or writes a block of a dataset that is there.
  void write(const std::string& dataset, const Tensor& tensor);
  void write(const std::string& dataset, const Tensor& block, IntArrayRef start);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace mica
