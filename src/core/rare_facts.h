// Facts that few tensors have: names, sparse parts, a quantizer, a place in a batch, a tangent, a version counter of
// their own. All other tensors pay one null pointer for them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mica/tensor.h"

namespace mica {

struct BatchFacts;    // of a tensor that stands for one sample of a batch
struct TangentFacts;  // of forward-mode differentiation

// The parts of a sparse tensor. COO: indices [sparse_dim, nnz] and values [nnz, *dense sizes]. Compressed: `compressed`
// [*batch, rows + 1] and `indices` [*batch, nnz] of the plain dimension, values [*batch, nnz, *block, *dense sizes];
// rows are compressed in CSR and BSR, columns in CSC and BSC.
struct SparseParts {
  Tensor compressed;
  Tensor indices;
  Tensor values;
  int64_t sparse_dim = 0;
  int64_t dense_dim = 0;
  bool coalesced = false;        // COO: no index twice, and in order
  uint32_t checked_version = 0;  // the version of the indices when they were last known to fit the size
};

// How the integers of a quantized tensor stand for real numbers: (integer - zero_point) * scale, with one pair for the
// tensor or one for each slice along `axis`.
struct Quantizer {
  double scale = 1;
  int64_t zero_point = 0;
  Tensor scales, zero_points;  // per channel: one-dimensional, of axis' size
  int64_t axis = -1;           // per tensor: -1
  bool float_zero_points = false;
};

// The quantizer of a view of a tensor that is quantized per channel. Refuses a view whose channels do not lie along one
// dimension. Defined beside the operations of quantized tensors.
std::shared_ptr<const Quantizer> quantizer_of_view(const TensorImpl& view, const TensorImpl& from,
                                                   const std::shared_ptr<const Quantizer>& quantizer);

struct RareFacts {
  Ref<VersionCounter> own_version;  // counts the changes apart from the storage; null: the storage counts
  std::vector<std::string> names;   // one for each dimension, "" where there is none; or empty
  std::optional<SparseParts> sparse;
  std::shared_ptr<const Quantizer> quantizer;
  std::shared_ptr<BatchFacts> batch;
  std::shared_ptr<TangentFacts> tangent;
};

inline const SparseParts& sparse_parts(const Tensor& t) { return *t.impl()->rare->sparse; }
inline const Quantizer& quantizer_of(const Tensor& t) { return *t.impl()->rare->quantizer; }

}  // namespace mica
