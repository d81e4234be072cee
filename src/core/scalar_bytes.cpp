#include "core/scalar_bytes.h"

#include <cstring>

#include "mica/error.h"

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
    case DType::Undefined:
      break;
  }
  fail("a number cannot become an element of an undefined dtype");
}

Scalar read_scalar(DType dtype, const void* from) {
  if (dtype == DType::Bool) return Scalar(*static_cast<const unsigned char*>(from) != 0);  // whatever byte it is
  switch (dtype) {
#define MICA_CASE(T, Name)                                      \
  case DType::Name: {                                           \
    T element;                                                  \
    std::memcpy(static_cast<void*>(&element), from, sizeof(T)); \
    return Scalar(element);                                     \
  }
    MICA_FORALL_DTYPES(MICA_CASE)
#undef MICA_CASE
    case DType::Undefined:
      break;
  }
  fail("an element of an undefined dtype cannot be read");
}

}  // namespace mica
