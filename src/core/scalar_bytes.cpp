#include "core/scalar_bytes.h"

#include <cstring>

#include "mica/error.h"
#include "mica/backend/kernel_types.h"

namespace mica {

void write_scalar(const Scalar& value, DType dtype, void* to) {
  switch (dtype) {
#define MICA_CASE(T, Name)                \
  case DType::Name: {                     \
    const T element = value.cast<T>();    \
    std::memcpy(to, &element, sizeof(T)); \
    return;                               \
  }
    MICA_FORALL_DTYPES(MICA_CASE)
#undef MICA_CASE
    default:
      break;
  }
  MICA_CHECK(dtype != DType::Undefined, "a number cannot become an element of an undefined dtype");
  // For dtypes that are only stored, zero means that all bits are zero; no other number has a meaning.
  if (!value.is_integral() || value.cast<int64_t>() != 0) unsupported_dtype("fill_cpu", dtype);
  std::memset(to, 0, static_cast<size_t>(element_size(dtype)));
}

Scalar read_scalar(DType dtype, const void* from) {
  if (dtype == DType::Bool) return Scalar(*static_cast<const unsigned char*>(from) != 0);  // any byte but zero is true
  switch (dtype) {
#define MICA_CASE(T, Name)                                      \
  case DType::Name: {                                           \
    T element;                                                  \
    std::memcpy(static_cast<void*>(&element), from, sizeof(T)); \
    return Scalar(element);                                     \
  }
    MICA_FORALL_DTYPES(MICA_CASE)
#undef MICA_CASE
    default:
      break;
  }
  MICA_CHECK(dtype != DType::Undefined, "an element of an undefined dtype cannot be read");
  unsupported_dtype("_local_scalar_dense_cpu", dtype);
}

}  // namespace mica
