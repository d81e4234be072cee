// Tensors and numbers as the page reads them.
#pragma once

#include "mica/mica.h"
#include "site.h"

namespace mica::lab {

inline constexpr int64_t kMostShown = 256;       // elements of a tensor that are sent
inline constexpr int64_t kMostElements = 65536;  // of a tensor that a question may make

// Numbers that JSON has no way to write are strings: "nan", "inf", "-inf".
Json number(double value);
Json number(const Scalar& value);
Json integers(IntArrayRef list);
DimVector dims(const Json& list, const char* what);  // at most eight integers
DType dtype_named(const std::string& name);

Json contiguity_json(IntArrayRef sizes, IntArrayRef strides);
std::string tuple(IntArrayRef list);  // "(3, 4)", "(3,)"
Json first_values(const Tensor& t);   // its first elements, in order
Json places(IntArrayRef sizes, IntArrayRef strides, int64_t offset, int64_t most = kMostShown);
Json describe(const Tensor& t);  // geometry, storage, values

}  // namespace mica::lab
