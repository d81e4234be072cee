#pragma once

#include "mica/backend/tensor_view.h"

namespace mica::cuda {

struct SortRows;

// Whether the rows were short enough for a block each, and were queued to be sorted, stably. An output that is not
// defined is not written.
bool sort_short_rows(const SortRows& rows, const TensorView& values, const TensorView& indices, const TensorView& self,
                     bool descending);

}  // namespace mica::cuda
