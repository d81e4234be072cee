// The two halves of a quantized tensor: its integers and its quantizer.
#pragma once

#include <memory>

#include "core/rare_facts.h"
#include "mica/tensor.h"

namespace mica {

// `integers`, which nobody else holds, as a quantized tensor.
Tensor attach_quantizer(Tensor integers, std::shared_ptr<const Quantizer> quantizer);

// The integers as a plain tensor over the same memory.
Tensor bare_integers(const Tensor& quantized);

}  // namespace mica
