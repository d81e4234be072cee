// Brings the tensors of a loss into the form that its kernels take. The derivatives use the same form.
#pragma once

#include "mica/tensor.h"

namespace mica::shapes {

// An input and a target of one dtype and shape whose elements lie in the same order in dense memory.
struct AlikePair {
  AlikePair(const Tensor& self, const Tensor& other);
  Tensor input, target;
};

// An input of (classes), (batch, classes) or (batch, classes, ...) as (batch, classes, inner), its targets as (batch,
// inner). Checked before.
struct ClassRows {
  ClassRows(const Tensor& self, const Tensor& target);
  Tensor input, labels;
  int64_t batch = 1, classes = 0, inner = 1;
  bool classes_last = false;  // the rows of a channels_last input: batch is then the number of all rows, inner 1
};

// torch's errors for targets and weights that do not fit the input.
void check_classes(const Tensor& self, const Tensor& target, const Tensor& weight);

}  // namespace mica::shapes
