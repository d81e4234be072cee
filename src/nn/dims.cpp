#include "mica/nn/dims.h"

#include "mica/error.h"

namespace mica::nn {

DimVector Dims::expand(size_t ndim, const char* what) const {
  if (sizes_.size() == ndim) return sizes_;
  MICA_CHECK_KIND(sizes_.size() == 1, Value, what, " must be one number or ", ndim, " of them, but got ", sizes_.ref());
  return DimVector(ndim, sizes_[0]);
}

std::string Dims::text() const { return is_list_ ? tuple_text(sizes_) : std::to_string(sizes_[0]); }

std::string tuple_text(IntArrayRef sizes) {
  std::string text = "(";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + (sizes.size() == 1 ? ",)" : ")");
}

}  // namespace mica::nn
