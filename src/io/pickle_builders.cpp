#include "io/pickle_builders.h"

#include "core/geometry.h"
#include "io/storage_view.h"
#include "mica/generated/layers/quantized.h"
#include "mica/generated/layers/sparse.h"
#include "mica/ops.h"

namespace mica::io {

void refuse(std::string message) { fail("Weights only load failed. " + std::move(message)); }

void refuse_name(const std::string& name) {
  refuse("Unsupported global: GLOBAL " + name +
         " was not an allowed global by default. From C++, files of tensors, plain values and containers can be "
         "loaded; save a state_dict() instead of a whole object.");
}

Builder builder_named(const std::string& name) {
  const auto builder = buildable(name);
  if (!builder) refuse_name(name);
  return *builder;
}

namespace {

const Value& argument(const Value& arguments, size_t i) {
  if (i >= arguments.size()) refuse("a call with too few arguments");
  return arguments[i];
}

DimVector dims(const Value& value) {
  DimVector sizes;
  for (const Value& item : value.as_list()) sizes.push_back(item.as_int());
  return sizes;
}

DType dtype_named(std::string_view full) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (full == cat("torch.", mica::name(static_cast<DType>(i)))) return static_cast<DType>(i);
  refuse(cat("no dtype is called ", full));
}

Value rebuild_tensor(Builder builder, const Value& arguments) {
  const Tensor storage = argument(arguments, 0).as_tensor();
  DType dtype = storage.dtype();
  size_t metadata = 6;
  if (builder == Builder::RebuildTensorV3) {
    dtype = dtype_named(argument(arguments, 6).as_string());
    metadata = 7;
  }
  Tensor t = view_storage(storage.storage(), dtype, argument(arguments, 1).as_int(), dims(argument(arguments, 2)),
                          dims(argument(arguments, 3)));
  if (arguments.size() > metadata && arguments[metadata].kind() == Value::Kind::Dict) {
    if (arguments[metadata].find("conj")) t = t.conj();
    if (arguments[metadata].find("neg")) t = _neg_view(t);
  }
  if (builder != Builder::RebuildTensor && argument(arguments, 4).as_bool()) t.requires_grad_(true);
  return t;
}

Value rebuild_meta_tensor(const Value& arguments) {
  const DType dtype = dtype_named(argument(arguments, 0).as_string());
  const DimVector sizes = dims(argument(arguments, 1)), strides = dims(argument(arguments, 2));
  Tensor t = empty_strided(sizes, strides, TensorOptions(dtype).device(Device(DeviceType::Meta)));
  if (arguments.size() > 3 && arguments[3].as_bool()) t.requires_grad_(true);
  return t;
}

const std::string& layout_named(const std::string& name) {
  for (const Layout layout : {Layout::Strided, Layout::SparseCoo, Layout::SparseCsr, Layout::SparseCsc,
                              Layout::SparseBsr, Layout::SparseBsc}) {
    std::string known;
    append_to(known, layout);
    if (known == name) return name;
  }
  refuse("layout " + name);
}

Value rebuild_sparse(const std::string& layout, const Value& parts) {
  if (layout == "torch.sparse_coo") {
    const Tensor indices = argument(parts, 0).as_tensor(), values = argument(parts, 1).as_tensor();
    const DimVector size = dims(argument(parts, 2));
    const bool coalesced = parts.size() > 3 && parts[3].as_bool();
    _validate_sparse_coo_tensor_args(indices, values, size, coalesced);
    return _sparse_coo_tensor_unsafe(indices, values, size, coalesced);
  }
  for (const Layout l : {Layout::SparseCsr, Layout::SparseCsc, Layout::SparseBsr, Layout::SparseBsc}) {
    std::string known;
    append_to(known, l);
    if (known != layout) continue;
    const Tensor compressed = argument(parts, 0).as_tensor(), plain = argument(parts, 1).as_tensor();
    const Tensor values = argument(parts, 2).as_tensor();
    const DimVector size = dims(argument(parts, 3));
    _validate_sparse_compressed_tensor_args(compressed, plain, values, size, l);
    return _sparse_compressed_tensor_unsafe(compressed, plain, values, size, l);
  }
  refuse(cat("no sparse layout is called ", layout));
}

// A tensor of 4-bit or 2-bit integers, whose storage holds fewer bytes than the tensor has elements.
Value rebuild_packed(const Tensor& storage, const Value& arguments) {
  const Value& quantizer = argument(arguments, 4);
  const std::string& scheme = argument(quantizer, 0).as_string();
  const DimVector sizes = dims(argument(arguments, 2)), count{static_cast<int64_t>(storage.storage()->nbytes())};
  const DimVector strides = dims(argument(arguments, 3)), dense = contiguous_strides(sizes);
  if (argument(arguments, 1).as_int() != 0 || !(strides.ref() == dense.ref()))
    refuse(cat("a view of a tensor of ", storage.dtype()));
  const Tensor bytes = view_storage(storage.storage(), DType::UInt8, 0, count, contiguous_strides(count));
  if (scheme == "torch.per_tensor_affine") {
    const Tensor scale = full({}, Scalar(argument(quantizer, 1).as_double()), TensorOptions(DType::Float64));
    const Tensor zero = full({}, Scalar(argument(quantizer, 2).as_int()), TensorOptions(DType::Int64));
    return _make_packed_quantized_tensor(bytes, sizes, scale, zero, -1, storage.dtype());
  }
  if (scheme != "torch.per_channel_affine_float_qparams") refuse(cat("a tensor that is quantized as ", scheme));
  return _make_packed_quantized_tensor(bytes, sizes, argument(quantizer, 1).as_tensor(),
                                       argument(quantizer, 2).as_tensor(), argument(quantizer, 3).as_int(),
                                       storage.dtype());
}

Value rebuild_quantized(const Value& arguments) {
  const Tensor storage = argument(arguments, 0).as_tensor();
  if (is_packed_quantized(storage.dtype())) return rebuild_packed(storage, arguments);
  const Tensor integers = view_storage(storage.storage(), storage.dtype(), argument(arguments, 1).as_int(),
                                       dims(argument(arguments, 2)), dims(argument(arguments, 3)));
  const Value& quantizer = argument(arguments, 4);
  const std::string& scheme = argument(quantizer, 0).as_string();
  if (scheme == "torch.per_tensor_affine")
    return _make_per_tensor_quantized_tensor(integers, argument(quantizer, 1).as_double(),
                                             argument(quantizer, 2).as_int());
  if (scheme == "torch.per_channel_affine" || scheme == "torch.per_channel_affine_float_qparams")
    return _make_per_channel_quantized_tensor(integers, argument(quantizer, 1).as_tensor(),
                                              argument(quantizer, 2).as_tensor(), argument(quantizer, 3).as_int());
  refuse(cat("a tensor that is quantized as ", scheme));
}

// A tensor of a subclass, or one with attributes: only the tensor itself is kept. The named function must be one that
// makes tensors, so that calls do not nest.
Value rebuild_from_type(const Value& arguments) {
  const Value &function = argument(arguments, 0), &inner = argument(arguments, 2);
  if (function.kind() != Value::Kind::Name || inner.kind() != Value::Kind::Tuple)
    refuse("_rebuild_from_type_v2 of what is no function");
  switch (builder_named(function.as_string())) {
    case Builder::RebuildTensor:
    case Builder::RebuildTensorV2:
    case Builder::RebuildTensorV3:
    case Builder::RebuildMetaTensor:
    case Builder::RebuildQuantizedTensor:
    case Builder::RebuildSparseTensor:
    case Builder::RebuildParameter:
    case Builder::RebuildParameterWithState:
      return build(function.as_string(), inner);
    default:
      refuse("_rebuild_from_type_v2 with " + function.as_string());
  }
}

Value dict_from(const Value& arguments) {
  Value made = Value::dict();
  if (!arguments.size()) return made;
  if (arguments[0].kind() == Value::Kind::Dict) {
    for (const auto& [key, value] : arguments[0].as_entries()) made.set(key, value);
  } else {
    for (const Value& pair : arguments[0].as_list()) made.set(argument(pair, 0), argument(pair, 1));
  }
  return made;
}

std::string latin1(const std::string& utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    if (c < 0x80) {
      bytes += utf8[i];
    } else {
      if ((c & 0xfc) != 0xc0 || i + 1 >= utf8.size()) refuse("text that is not made of bytes");
      bytes += static_cast<char>((c << 6) | (static_cast<unsigned char>(utf8[++i]) & 0x3f));
    }
  }
  return bytes;
}

Value bytes_from(const Value& arguments) {
  if (!arguments.size()) return Value::bytes({});
  const Value& content = arguments[0];
  if (content.kind() == Value::Kind::Bytes && arguments.size() == 1) return content;
  if (content.kind() != Value::Kind::String) refuse("bytes of what is no text");
  const std::string encoding = arguments.size() > 1 ? arguments[1].as_string() : "latin1";
  if (encoding != "latin1" && encoding != "latin-1") refuse("encode to " + encoding);
  return Value::bytes(latin1(content.as_string()));
}

}  // namespace

Value tensor_from_state(const Value& state) { return rebuild_tensor(Builder::RebuildTensor, state); }

Value build(const std::string& name, const Value& arguments) {
  const Builder builder = builder_named(name);
  switch (builder) {
    case Builder::RebuildTensor:
    case Builder::RebuildTensorV2:
    case Builder::RebuildTensorV3:
      return rebuild_tensor(builder, arguments);
    case Builder::RebuildMetaTensor:
      return rebuild_meta_tensor(arguments);
    case Builder::RebuildQuantizedTensor:
      return rebuild_quantized(arguments);
    case Builder::RebuildSparseTensor:
      return rebuild_sparse(argument(arguments, 0).as_string(), argument(arguments, 1));
    case Builder::RebuildParameter:
    case Builder::RebuildParameterWithState:
    case Builder::Parameter: {
      Tensor data = argument(arguments, 0).as_tensor().detach();
      data.requires_grad_(arguments.size() < 2 || arguments[1].as_bool());
      return data;
    }
    case Builder::RebuildFromType:
      return rebuild_from_type(arguments);
    case Builder::LegacyTensor:
      if (arguments.size()) refuse("a tensor made from arguments");
      return empty({0}, TensorOptions());
    case Builder::OrderedDict:
    case Builder::Counter:
      return dict_from(arguments);
    case Builder::Size:
      return Value::tuple(argument(arguments, 0).as_list());
    case Builder::Set:
      return Value::list(arguments.size() ? arguments[0].as_list() : std::vector<Value>());
    case Builder::Device: {
      const std::string& type = argument(arguments, 0).as_string();
      return arguments.size() > 1 ? cat(type, ":", arguments[1].as_int()) : type;
    }
    case Builder::Layout:
      return Value::name(layout_named(argument(arguments, 0).as_string()));
    case Builder::Bytes:
    case Builder::ByteArray:
      return bytes_from(arguments);
    case Builder::Complex:
      refuse("a complex number: from C++, complex numbers can be loaded as tensors");
    case Builder::Nothing:
      break;
  }
  refuse("the pickle calls " + name + ", which is no function");
}

}  // namespace mica::io
