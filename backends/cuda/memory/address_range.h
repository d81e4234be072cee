// A range of addresses of a device to which memory is added page by page, so that one segment can grow and shrink in
// place.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/cuda/driver.h"

namespace mica::cuda {

class AddressRange {
 public:
  AddressRange(int device, size_t page, size_t bytes);  // in whole pages
  AddressRange(const AddressRange&) = delete;
  ~AddressRange();

  char* base() const { return base_; }
  size_t page() const { return page_; }
  size_t bytes() const { return bytes_; }
  // Puts memory behind [begin, end), in whole pages that have none; false where the device has too little left.
  bool map(size_t begin, size_t end);
  // Takes it away again; nothing queued may use it.
  void unmap(size_t begin, size_t end) noexcept;

 private:
  int device_;
  size_t page_, bytes_;
  char* base_ = nullptr;
  std::vector<CUmemGenericAllocationHandle> handles_;  // of each page; 0 where there is no memory
};

}  // namespace mica::cuda
