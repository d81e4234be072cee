#include <bit>
#include <unordered_map>

#include "io/pickle_opcodes.h"
#include "io/pickle_values.h"
#include "mica/ops.h"

#include "core/rare_facts.h"

namespace mica::io {

namespace {

struct StorageClass {
  const char* name;
  DType dtype;
};
constexpr StorageClass kStorageClasses[] = {
    {"DoubleStorage", DType::Float64},
    {"FloatStorage", DType::Float32},
    {"HalfStorage", DType::Float16},
    {"BFloat16Storage", DType::BFloat16},
    {"LongStorage", DType::Int64},
    {"IntStorage", DType::Int32},
    {"ShortStorage", DType::Int16},
    {"CharStorage", DType::Int8},
    {"ByteStorage", DType::UInt8},
    {"BoolStorage", DType::Bool},
    {"ComplexDoubleStorage", DType::Complex128},
    {"ComplexFloatStorage", DType::Complex64},
    // Storages of quantized tensors, whose elements are integers.
    {"QInt8Storage", DType::Int8},
    {"QUInt8Storage", DType::UInt8},
    {"QInt32Storage", DType::Int32},
    {"QUInt4x2Storage", DType::QUInt4x2},
    {"QUInt2x4Storage", DType::QUInt2x4},
};

class PickleWriter {
 public:
  explicit PickleWriter(const std::function<std::string(const Storage&)>& refer) : refer_(refer) {
    put(Opcode::Proto);
    out_ += '\x02';
  }

  std::string finish(const Value& value) {
    write(value);
    put(Opcode::Stop);
    return std::move(out_);
  }

 private:
  void put(Opcode opcode) { out_ += static_cast<char>(opcode); }
  template <class T>
  void put_raw(T v) {
    out_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }

  void write(const Value& value) {
    MICA_CHECK(++depth_ < 1000, "save: the value is nested more than 1000 deep, or holds itself");
    switch (value.kind()) {
      case Value::Kind::None:
        put(Opcode::None);
        break;
      case Value::Kind::Bool:
        put(value.as_bool() ? Opcode::NewTrue : Opcode::NewFalse);
        break;
      case Value::Kind::Int:
        write_int(value.as_int());
        break;
      case Value::Kind::Double:
        write_double(value.as_double());
        break;
      case Value::Kind::String:
        write_string(value.as_string());
        break;
      case Value::Kind::Bytes:
        write_bytes(value.as_string());
        break;
      case Value::Kind::Name: {
        const std::string& name = value.as_string();
        const size_t dot = name.rfind('.');
        MICA_CHECK_KIND(dot != std::string::npos, Value, "save: the name ", name, " has no module");
        write_global(name.substr(0, dot), name.substr(dot + 1));
        break;
      }
      case Value::Kind::Tensor:
        write_tensor(value.as_tensor());
        break;
      case Value::Kind::List:
        put(Opcode::EmptyList);
        write_marked(value.as_list(), Opcode::Appends);
        break;
      case Value::Kind::Tuple:
        write_marked(value.as_list(), Opcode::Tuple, true);
        break;
      case Value::Kind::Dict: {
        put(Opcode::EmptyDict);
        std::vector<Value> items;
        for (auto& [key, item] : value.as_entries()) {
          items.push_back(key);
          items.push_back(item);
        }
        write_marked(items, Opcode::SetItems);
        break;
      }
    }
    --depth_;
  }

  void write_marked(const std::vector<Value>& items, Opcode opcode, bool even_if_empty = false) {
    if (items.empty() && !even_if_empty) return;
    put(Opcode::Mark);
    for (const Value& item : items) write(item);
    put(opcode);
  }

  void write_int(int64_t v) {
    if (v >= INT32_MIN && v <= INT32_MAX) {
      put(Opcode::BinInt);
      put_raw(static_cast<int32_t>(v));
    } else {
      put(Opcode::Long1);
      out_ += '\x08';
      put_raw(v);
    }
  }

  void write_double(double v) {
    put(Opcode::BinFloat);
    put_raw(__builtin_bswap64(std::bit_cast<uint64_t>(v)));
  }

  void write_string(std::string_view s) {
    MICA_CHECK(s.size() < UINT32_MAX, "save: a string of ", s.size(), " bytes");
    put(Opcode::BinUnicode);
    put_raw(static_cast<uint32_t>(s.size()));
    out_ += s;
  }

  // Protocol 2 has no bytes: they are text whose characters are below 256, encoded when read.
  void write_bytes(std::string_view bytes) {
    std::string text;
    for (const char c : bytes) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80) {
        text += c;
      } else {
        text += static_cast<char>(0xc0 | (byte >> 6));
        text += static_cast<char>(0x80 | (byte & 0x3f));
      }
    }
    write_global("_codecs", "encode");
    write_string(text);
    write_string("latin1");
    put(Opcode::Tuple2);
    put(Opcode::Reduce);
  }

  // A name is written once and fetched from the memo afterwards.
  void write_global(const std::string& module, const std::string& name) {
    const auto [found, is_new] = memo_.emplace(module + "\n" + name, static_cast<uint32_t>(memo_.size()));
    if (!is_new) {
      put(Opcode::LongBinGet);
      put_raw(found->second);
      return;
    }
    put(Opcode::Global);
    out_ += found->first + "\n";
    put(Opcode::LongBinPut);
    put_raw(found->second);
  }

  void write_dims(IntArrayRef dims) {
    put(Opcode::Mark);
    for (const int64_t d : dims) write_int(d);
    put(Opcode::Tuple);
  }

  // torch._utils._rebuild_sparse_tensor(layout, (parts..., size))
  void write_sparse(const Tensor& t) {
    const SparseParts& p = sparse_parts(t);
    std::string layout;
    append_to(layout, t.layout());
    write_global("torch._utils", "_rebuild_sparse_tensor");
    put(Opcode::Mark);
    write_global("torch.serialization", "_get_layout");
    put(Opcode::Mark);
    write_string(layout);
    put(Opcode::Tuple);
    put(Opcode::Reduce);
    put(Opcode::Mark);
    if (p.compressed.defined()) write_tensor(p.compressed);
    write_tensor(p.indices);
    write_tensor(p.values);
    write_global("torch", "Size");
    put(Opcode::Mark);
    write_dims(t.sizes());
    put(Opcode::Tuple);
    put(Opcode::Reduce);
    if (!p.compressed.defined()) put(p.coalesced ? Opcode::NewTrue : Opcode::NewFalse);
    put(Opcode::Tuple);
    put(Opcode::Tuple);
    put(Opcode::Reduce);
  }

  // Where the elements of a tensor lie: the storage, the offset, the sizes and the strides.
  void write_elements(const Tensor& t, const char* storage_class) {
    put(Opcode::Mark);
    write_string("storage");
    if (storage_class) {
      write_global("torch", storage_class);
    } else {
      write_global("torch.storage", "UntypedStorage");
    }
    write_string(refer_(t.storage()));
    std::string location;
    append_to(location, t.device());
    write_string(t.is_cpu() ? "cpu" : location);
    const auto nbytes = static_cast<int64_t>(t.storage()->nbytes());
    write_int(storage_class ? nbytes / t.element_size() : nbytes);
    put(Opcode::Tuple);
    put(Opcode::BinPersId);
    write_int(t.storage_offset());
    write_dims(t.sizes());
    write_dims(t.strides());
  }

  void write_quantized(const Tensor& t) {
    const Quantizer& q = quantizer_of(t);
    write_global("torch._utils", "_rebuild_qtensor");
    put(Opcode::Mark);
    write_elements(t, is_packed_quantized(t.dtype()) ? storage_class_name(t.dtype())
                      : t.dtype() == DType::Int8     ? "QInt8Storage"
                      : t.dtype() == DType::UInt8    ? "QUInt8Storage"
                                                     : "QInt32Storage");
    put(Opcode::Mark);
    write_global("torch", q.axis < 0            ? "per_tensor_affine"
                          : q.float_zero_points ? "per_channel_affine_float_qparams"
                                                : "per_channel_affine");
    if (q.axis < 0) {
      write_double(q.scale);
      write_int(q.zero_point);
    } else {
      write_tensor(q.scales);
      write_tensor(q.zero_points);
      write_int(q.axis);
    }
    put(Opcode::Tuple);
    put(Opcode::NewFalse);
    write_global("collections", "OrderedDict");  // for hooks, of which there are none
    put(Opcode::EmptyTuple);
    put(Opcode::Reduce);
    put(Opcode::Tuple);
    put(Opcode::Reduce);
  }

  void write_tensor(const Tensor& given) {
    MICA_CHECK(given.defined(), "save: an undefined tensor");
    MICA_CHECK(!given.is_meta(), "save: a tensor without data (on the meta device)");
    if (given.is_quantized()) return write_quantized(given);
    if (given.layout() != Layout::Strided) return write_sparse(given);
    const bool requires_grad = given.requires_grad();
    Tensor t = given.detach().resolve_conj().resolve_neg();
    for (const int64_t stride : t.strides())
      if (stride < 0) t = t.contiguous();  // torch has no negative strides
    const char* storage_class = storage_class_name(t.dtype());
    write_global("torch._utils", storage_class ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    put(Opcode::Mark);
    write_elements(t, storage_class);
    put(requires_grad ? Opcode::NewTrue : Opcode::NewFalse);
    write_global("collections", "OrderedDict");  // for hooks, of which there are none
    put(Opcode::EmptyTuple);
    put(Opcode::Reduce);
    if (!storage_class) write_global("torch", std::string(name(t.dtype())));
    put(Opcode::Tuple);
    put(Opcode::Reduce);
  }

  const std::function<std::string(const Storage&)>& refer_;
  std::string out_;
  std::unordered_map<std::string, uint32_t> memo_;
  int depth_ = 0;
};

}  // namespace

const char* storage_class_name(DType dtype) {
  for (const StorageClass& c : kStorageClasses)
    if (c.dtype == dtype) return c.name;
  return nullptr;
}

DType storage_class_dtype(std::string_view name) {
  for (const StorageClass& c : kStorageClasses)
    if (c.name == name) return c.dtype;
  return name == "UntypedStorage" ? DType::UInt8 : DType::Undefined;
}

std::string pickle(const Value& value, const std::function<std::string(const Storage&)>& refer) {
  return PickleWriter(refer).finish(value);
}

}  // namespace mica::io
