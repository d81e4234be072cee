// Finds where the bags of an embedding_bag begin, and which bag an index is in.
#pragma once

#include "mica/tensor.h"

namespace mica::shapes {

struct Bags {
  Bags(const Tensor& indices, const Tensor& offsets, bool include_last_offset);
  Tensor indices;         // int64, contiguous, one-dimensional
  Tensor begins;          // int64: one entry more than there are bags
  Tensor bag_of() const;  // the bag of every index
  // Every mode but the plain sum lets the last bag run to the end of the indices, whatever the last offset says.
  void run_to_the_end(int64_t mode, int64_t padding_idx, const Tensor& weight);
  int64_t count() const { return begins.numel() - 1; }
};

}  // namespace mica::shapes
