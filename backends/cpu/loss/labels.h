// The class labels of a loss: int64 or uint8, one for every row.
#pragma once

#include "mica/backend/tensor_view.h"
#include "mica/error.h"

namespace mica::cpu {

class Labels {
 public:
  Labels(const TensorView& target, int64_t classes, int64_t ignore_index)
      : wide_(target.dtype == DType::Int64 ? target.ptr<const int64_t>() : nullptr),
        narrow_(target.ptr<const uint8_t>()),
        classes_(classes),
        ignore_index_(ignore_index) {}

  // The class of a row, or -1 where it does not count.
  int64_t operator[](int64_t row) const {
    const int64_t label = wide_ ? wide_[row] : narrow_[row];
    if (label == ignore_index_) return -1;
    if (label < 0 || label >= classes_) [[unlikely]]
      fail(ErrorKind::Index, cat("Target ", label, " is out of bounds. The input has ", classes_, " classes."));
    return label;
  }

 private:
  const int64_t* wide_;
  const uint8_t* narrow_;
  int64_t classes_, ignore_index_;
};

}  // namespace mica::cpu
