#include "io/buildable.h"

#include "io/pickle_values.h"
#include "mica/error.h"

namespace mica::io {

namespace {

struct Entry {
  std::string_view name;
  Builder builder;
};

constexpr Entry kEntries[] = {
    {"_codecs.encode", Builder::Bytes},
    {"builtins.bytearray", Builder::ByteArray},
    {"builtins.complex", Builder::Complex},
    {"builtins.set", Builder::Set},
    {"collections.Counter", Builder::Counter},
    {"collections.OrderedDict", Builder::OrderedDict},
    {"torch.Size", Builder::Size},
    {"torch.Tensor", Builder::LegacyTensor},
    {"torch.UntypedStorage", Builder::Nothing},
    {"torch.device", Builder::Device},
    {"torch.nn.parameter.Parameter", Builder::Parameter},
    {"torch.serialization._get_layout", Builder::Layout},
    {"torch.storage.TypedStorage", Builder::Nothing},
    {"torch.storage.UntypedStorage", Builder::Nothing},
    {"torch._tensor._rebuild_from_type_v2", Builder::RebuildFromType},
    {"torch._utils._rebuild_meta_tensor_no_storage", Builder::RebuildMetaTensor},
    {"torch._utils._rebuild_parameter", Builder::RebuildParameter},
    {"torch._utils._rebuild_parameter_with_state", Builder::RebuildParameterWithState},
    {"torch._utils._rebuild_qtensor", Builder::RebuildQuantizedTensor},
    {"torch._utils._rebuild_sparse_tensor", Builder::RebuildSparseTensor},
    {"torch._utils._rebuild_tensor", Builder::RebuildTensor},
    {"torch._utils._rebuild_tensor_v2", Builder::RebuildTensorV2},
    {"torch._utils._rebuild_tensor_v3", Builder::RebuildTensorV3},
};

// Dtypes of quantized tensors that are not element types of the engine, quantization schemes, and storages of quantized
// tensors.
constexpr std::string_view kPlaceholders[] = {"qint8",
                                              "quint8",
                                              "qint32",
                                              "per_tensor_affine",
                                              "per_tensor_symmetric",
                                              "per_channel_affine",
                                              "per_channel_symmetric",
                                              "per_channel_affine_float_qparams",
                                              "QInt8Storage",
                                              "QUInt8Storage",
                                              "QInt32Storage"};

constexpr std::string_view kTorch = "torch.";
constexpr std::string_view kPython2 = "__builtin__.";

}  // namespace

std::optional<Builder> buildable(std::string_view name) {
  if (name.starts_with(kPython2)) return buildable("builtins." + std::string(name.substr(kPython2.size())));
  for (const Entry& entry : kEntries)
    if (entry.name == name) return entry.builder;
  if (!name.starts_with(kTorch)) return std::nullopt;
  name.remove_prefix(kTorch.size());
  if (storage_class_dtype(name) != DType::Undefined) return Builder::Nothing;
  for (int i = 0; i < kNumDTypes; ++i)
    if (name == mica::name(static_cast<DType>(i))) return Builder::Nothing;
  for (const std::string_view placeholder : kPlaceholders)
    if (name == placeholder) return Builder::Nothing;
  return std::nullopt;
}

std::vector<std::string> buildable_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  for (const std::string_view placeholder : kPlaceholders) names.push_back(cat(kTorch, placeholder));
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    names.push_back(cat(kTorch, mica::name(dtype)));
    if (const char* storage_class = storage_class_name(dtype)) names.push_back(cat(kTorch, storage_class));
  }
  return names;
}

}  // namespace mica::io
