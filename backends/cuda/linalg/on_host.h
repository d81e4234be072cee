// Kernels that run on the host: their tensors are copied there and back.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "backends/cuda/runtime.h"
#include "mica/backend/layer_backend.h"

namespace mica::cuda::linalg {

// Copies of dense tensors in the host's memory, and back on the device when they are asked for.
class HostCopies {
 public:
  explicit HostCopies(std::initializer_list<const TensorView*> views);
  const TensorView& operator[](size_t i) const { return copies_[i]; }
  void copy_back(std::initializer_list<size_t> which) const;

 private:
  std::vector<const TensorView*> originals_;
  std::vector<TensorView> copies_;
  std::vector<std::unique_ptr<unsigned char[]>> memory_;
};

}  // namespace mica::cuda::linalg
