// Floats of eight bits, for the few kernels that take them. Other kernels do not compile code for them.
#pragma once

#include <type_traits>

#include "backends/cpu/visit_dtype.h"

namespace mica::cpu {

template <class T>
inline constexpr bool is_float8_v = sizeof(T) == 1 && std::is_class_v<T>&& std::is_convertible_v<T, float>;

template <class F>
void visit_float8(const char* name, DType dtype, const F& f) {
  visit_any(name, dtype, [&]<class T>(Tag<T> tag) {
    if constexpr (is_float8_v<T>) f(tag);
  });
}

}  // namespace mica::cpu
