#include "mica/generated/layers/special_functions_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor special_modified_bessel_i0(const Tensor& self) { return i0(self); }
Tensor special_modified_bessel_i1(const Tensor& self) { return special_i1(self); }

}  // namespace mica::composite
