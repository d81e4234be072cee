#include "interop/dlpack_import.h"

#include "core/allocate.h"
#include "core/geometry.h"
#include "mica/backend.h"

namespace mica::dlpack {

DLDataType data_type_of(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * element_size(dtype));
  switch (dtype) {
    case DType::Bool:
      return {kDLBool, bits, 1};
    case DType::BFloat16:
      return {kDLBfloat, bits, 1};
    case DType::Float8_e4m3fn:
      return {kDLFloat8_e4m3fn, bits, 1};
    case DType::Float8_e4m3fnuz:
      return {kDLFloat8_e4m3fnuz, bits, 1};
    case DType::Float8_e5m2:
      return {kDLFloat8_e5m2, bits, 1};
    case DType::Float8_e5m2fnuz:
      return {kDLFloat8_e5m2fnuz, bits, 1};
    case DType::Float8_e8m0fnu:
      return {kDLFloat8_e8m0fnu, bits, 1};
    case DType::Float4_e2m1fn_x2:
      return {kDLFloat4_e2m1fn, 4, 2};
    default:
      break;
  }
  MICA_CHECK_KIND(!is_bits(dtype), Buffer, "Bit types are not supported by dlpack");
  MICA_CHECK_KIND(!is_packed_quantized(dtype), Buffer, "QUInt/QInt types are not supported by dlpack");
  if (is_complex(dtype)) return {kDLComplex, bits, 1};
  if (is_floating(dtype)) return {kDLFloat, bits, 1};
  return {info(dtype).is_signed ? kDLInt : kDLUInt, bits, 1};
}

DType dtype_of(DLDataType type) {
  if (type.code == kDLFloat4_e2m1fn && type.bits == 4 && type.lanes == 2) return DType::Float4_e2m1fn_x2;
  MICA_CHECK_KIND(type.lanes == 1, Buffer, "ATen does not support lanes != 1: the elements come in vectors of ",
                  type.lanes);
  for (int i = 0; i < kNumDTypes; ++i) {
    if (is_storage_only(static_cast<DType>(i))) break;  // integers of less than a byte come back as bytes
    const DLDataType known = data_type_of(static_cast<DType>(i));
    if (known.code == type.code && known.bits == type.bits) return static_cast<DType>(i);
  }
  fail(ErrorKind::Buffer, cat("Unsupported DLPack element type: code ", static_cast<int>(type.code), ", ",
                              static_cast<int>(type.bits), " bits"));
}

Device device_of(DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return kCPU;
    default:
      break;
  }
  const std::optional<DeviceType> type = device_type_of_dlpack(device.device_type);
  MICA_CHECK_KIND(type, Buffer, "Unsupported device_type: ", device.device_type);
  MICA_CHECK_KIND(device.device_id >= 0 && device.device_id < 128, Buffer, "DLPack: there is no device ",
                  device_type_name(*type), ":", device.device_id);
  return Device(*type, device.device_id);
}

Tensor tensor_over(const DLTensor& t, StorageImpl::Deleter deleter, void* context) {
  constexpr int32_t kMostDims = 1000;
  const DType dtype = dtype_of(t.dtype);
  const Device device = device_of(t.device);
  if (!device.is_cpu()) with_index(device);
  MICA_CHECK_KIND(t.ndim >= 0 && t.ndim <= kMostDims && (t.shape || t.ndim == 0), Buffer,
                  "DLPack: a tensor cannot have ", t.ndim, " dimensions", t.shape ? "" : " and no shape");
  const IntArrayRef sizes(t.shape, static_cast<size_t>(t.ndim));
  const int64_t count = count_elements(sizes);  // throws for negative sizes and for too many elements
  const DimVector strides =
      t.strides ? DimVector(IntArrayRef(t.strides, static_cast<size_t>(t.ndim))) : contiguous_strides(sizes);
  MICA_CHECK_KIND(t.data || count == 0, Buffer, "DLPack: a tensor of ", count, " elements without memory");
  // The bytes that the strides reach: each product fits in 128 bits, and a sum of a thousand of them does too.
  __int128 low = 0, high = 1;
  for (int32_t d = 0; d < t.ndim && count > 0; ++d) {
    const __int128 span = static_cast<__int128>(sizes[d] - 1) * strides[d];
    if (span > INT64_MAX || span < -INT64_MAX) low = -INT64_MAX, high = INT64_MAX;
    (span < 0 ? low : high) += span;
  }
  const auto begin = static_cast<__int128>(reinterpret_cast<uintptr_t>(t.data)) + t.byte_offset;
  const int64_t width = element_size(dtype);
  MICA_CHECK_KIND(count == 0 || ((high - low) * width <= INT64_MAX && begin + low * width >= 0 &&
                                 begin + high * width <= static_cast<__int128>(UINT64_MAX)),
                  Buffer, "DLPack: sizes ", sizes, " and strides ", strides, " reach outside of the address space");
  return mica::tensor_over(reinterpret_cast<char*>(static_cast<uintptr_t>(begin)), dtype, device, sizes, strides,
                           deleter, context);
}

}  // namespace mica::dlpack
