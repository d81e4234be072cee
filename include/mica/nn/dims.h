// Sizes that may be given as one number for every dimension: .stride = 2, .stride = {2, 1}.
#pragma once

#include <initializer_list>

#include "mica/core/array_ref.h"

namespace mica::nn {

class Dims {
 public:
  Dims(int64_t same) : sizes_{same} {}
  Dims(int same) : sizes_{int64_t{same}} {}
  Dims(std::initializer_list<int64_t> sizes) : sizes_(sizes), is_list_(true) {}
  Dims(const DimVector& sizes) : sizes_(sizes), is_list_(true) {}

  operator IntArrayRef() const { return sizes_; }
  IntArrayRef sizes() const { return sizes_; }
  // As many numbers as there are dimensions; throws where another number of them was given.
  DimVector expand(size_t ndim, const char* what) const;
  std::string text() const;  // as it was given: "3" or "(3, 5)"

 private:
  DimVector sizes_;
  bool is_list_ = false;
};
inline void append_to(std::string& s, const Dims& dims) { s += dims.text(); }

// "(3, 3)", as Python writes a tuple.
std::string tuple_text(IntArrayRef sizes);

}  // namespace mica::nn
