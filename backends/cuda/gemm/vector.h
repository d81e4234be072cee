#pragma once

#include "mica/backend/fusion.h"
#include "mica/backend/kernel_types.h"

namespace mica::cuda {

// Whether the product was queued as that of one row with a matrix of 16-bit floats whose columns lie together, as the
// weights of a layer do. It takes as long as reading the matrix does.
bool vector_matmul(const MatmulCall& call);

// Whether it is such a product, by its shape and alignment; whether a norm of the row can be computed with them; and
// several products of one row at once, with what stands before and after them (FusedProducts). Together they take as
// long as reading all the matrices does.
bool takes_vector(const MatmulCall& call);
bool takes_row_norm(DType dtype, int64_t count);
void run_fused_products(const FusedProducts& products);

}  // namespace mica::cuda
