// What the rules of linear algebra share: checks in torch's words, and the column-major copies that kernels take.
#pragma once

#include <initializer_list>

#include "core/out.h"
#include "mica/tensor.h"

namespace mica::linalg_rules {

void check_matrix(const Tensor& a, const char* op, const char* name = "A");
void check_square(const Tensor& a, const char* op, const char* name = "A");
void check_floating(const Tensor& a, const char* op, bool low_precision = true);
// One of float32, float64, complex64, complex128, or torch's error for a kernel that has no such dtype.
void check_kernel_dtype(const Tensor& a, const char* kernel);
void check_same_dtype(const Tensor& a, const Tensor& b, const char* op);

DimVector batch_sizes(const Tensor& a, int64_t inner = 2);
DimVector with_sizes(IntArrayRef batch, std::initializer_list<int64_t> inner);

// Dense, every matrix column-major, the batch contiguous; the copy is always fresh.
Tensor empty_columns(IntArrayRef sizes, const TensorOptions& options);
Tensor column_copy(const Tensor& a);
Tensor empty_info(const Tensor& a);  // an int32 for each matrix, zeros

// `a` with the given batch, as a view.
Tensor expand_batch(const Tensor& a, IntArrayRef batch);
DimVector broadcast_batch(const Tensor& a, const Tensor& b);

// Makes a computed tensor the result. A view is copied, because a result must not be one.
void give(Out& out, const Tensor& computed);

// Throws a LinAlgError in torch's words for the first matrix whose number is not zero. `op` is linalg.inv and so on.
void check_info(const Tensor& info, const char* op);

}  // namespace mica::linalg_rules
