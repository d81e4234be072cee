// Gathers those parameters of a step that one fused kernel can take.
#pragma once

#include <initializer_list>

#include "mica/backend/layer_backend.h"
#include "mica/core/inline_list.h"
#include "mica/optim/fused_step.h"
#include "mica/tensor.h"

namespace mica::optim {

// Refuses, before anything is changed, a gradient or state that is not of the parameter's shape and device.
void check_alike(std::initializer_list<const Tensor*> tensors);

class FusedBatch {
 public:
  using Kernel = void (*LayerKernelTable::*)(const FusedStep&);

  explicit FusedBatch(Kernel kernel) : kernel_(kernel) {}
  FusedBatch(const FusedBatch&) = delete;
  FusedBatch& operator=(const FusedBatch&) = delete;

  // Adds a parameter, its gradient and its states. Returns null if the kernel cannot take them; the caller then
  // computes the step otherwise. They may be complex: each number is then two of the real dtype. The caller fills in
  // the rest and keeps the tensors alive until run().
  FusedParameter* add(std::initializer_list<const Tensor*> tensors, uint32_t flags);
  void run();

 private:
  bool overlapping() const;

  Kernel kernel_;
  DType dtype_ = DType::Undefined;
  Device device_;
  InlineList<FusedParameter, 4> parameters_;
};

}  // namespace mica::optim
