// Quantized integers of 4 and of 2 bits, several in a byte, the first in the lowest bits. Such a tensor has fewer bytes
// than elements, so that its only view is the tensor itself.
#pragma once

#include "core/rare_facts.h"
#include "mica/tensor.h"

namespace mica {

// The integers, uint8 below 16 or below 4, packed into a flat tensor of bytes.
Tensor pack_integers(const Tensor& integers, DType dtype);

// The bytes of a packed tensor, and its integers as uint8.
Tensor packed_bytes(const Tensor& packed);
Tensor unpack_integers(const Tensor& packed);

// A quantized tensor of those sizes over bytes that nobody else holds.
Tensor over_packed_bytes(const Tensor& bytes, IntArrayRef sizes, DType dtype,
                         std::shared_ptr<const Quantizer> quantizer);

// Quantizes per channel with real zero points: x / scale + zero, rounded and kept between low and high (NaN becomes
// low); and the way back.
Tensor round_with_real_zeros(const Tensor& numbers, const Quantizer& q, int64_t low, int64_t high);
Tensor numbers_with_real_zeros(const Tensor& integers, const Quantizer& q);

}  // namespace mica
