#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda {

// Whether the product was queued as that of one row with a matrix of 16-bit floats whose columns lie together, as the
// weights of a layer do. It takes as long as reading the matrix does.
bool vector_matmul(const MatmulCall& call);

// Whether it is such a product, by its shape and alignment, and several of one row at once: together they take as long
// as reading all the matrices does.
bool takes_vector(const MatmulCall& call);
void vector_matmuls(const MatmulCall* calls, int count);

}  // namespace mica::cuda
