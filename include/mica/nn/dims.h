// Sizes that may be given as one number for every dimension: .stride = 2, .stride = {2, 1}.
#pragma once

#include <initializer_list>

#include "mica/array_ref.h"

namespace mica::nn {

class Dims {
 public:
  Dims(int64_t same) : sizes_{same} {}
  Dims(int same) : sizes_{int64_t{same}} {}
  Dims(std::initializer_list<int64_t> sizes) : sizes_(sizes) {}
  Dims(const DimVector& sizes) : sizes_(sizes) {}

  // As many numbers as there are dimensions; throws where another number of them was given.
  DimVector expand(size_t ndim, const char* what) const;

 private:
  DimVector sizes_;
};

// "(3, 3)", as Python writes a tuple.
std::string tuple_text(IntArrayRef sizes);

}  // namespace mica::nn
