#include <bit>
#include <cstring>
#include <unordered_map>

#include "io/pickle_opcodes.h"
#include "io/pickle_values.h"
#include "io/storage_view.h"
#include "mica/generated/layers/sparse.h"
#include "mica/ops.h"

namespace mica::io {

namespace {

template <class T>
T little_endian(std::string_view bytes) {
  T v{};
  std::memcpy(&v, bytes.data(), sizeof v);
  return v;
}

[[noreturn]] void refuse(std::string message) { fail("Weights only load failed. " + std::move(message)); }

// The stack machine that a pickle is a program for. A storage is held as a one-dimensional tensor over all of it.
class PickleReader {
 public:
  PickleReader(std::string_view pickle, const std::function<Storage(const StorageReference&)>& fetch)
      : lexer_(pickle), fetch_(fetch) {}

  Value run() {
    for (;;) {
      const Instruction i = lexer_.next();
      if (i.opcode == Opcode::Stop) return pop();
      step(i);
    }
  }

 private:
  void push(Value value) { stack_.push_back(std::move(value)); }

  Value& top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("the pickle takes more values than it has made");
    return stack_.back();
  }

  Value pop() {
    Value value = std::move(top());
    stack_.pop_back();
    return value;
  }

  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) refuse("the pickle has no mark");
    const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    marks_.pop_back();
    std::vector<Value> items(std::make_move_iterator(begin), std::make_move_iterator(stack_.end()));
    stack_.erase(begin, stack_.end());
    return items;
  }

  void push_tuple(size_t count) {
    std::vector<Value> items(count);
    while (count--) items[count] = pop();
    push(Value::tuple(std::move(items)));
  }

  void step(const Instruction& i) {
    const std::string_view a = i.argument;
    switch (i.opcode) {
      case Opcode::Proto:
      case Opcode::Frame:
        return;
      case Opcode::None:
        return push({});
      case Opcode::NewTrue:
        return push(true);
      case Opcode::NewFalse:
        return push(false);
      case Opcode::BinInt:
        return push(int64_t{little_endian<int32_t>(a)});
      case Opcode::BinInt1:
        return push(int64_t{little_endian<uint8_t>(a)});
      case Opcode::BinInt2:
        return push(int64_t{little_endian<uint16_t>(a)});
      case Opcode::Long1:
      case Opcode::Long4:
        return push_long(a);
      case Opcode::BinFloat:
        return push(std::bit_cast<double>(__builtin_bswap64(little_endian<uint64_t>(a))));
      case Opcode::BinUnicode:
      case Opcode::ShortBinUnicode:
      case Opcode::BinUnicode8:
      case Opcode::ShortBinString:
      case Opcode::BinString:
        return push(std::string(a));
      case Opcode::BinBytes:
      case Opcode::ShortBinBytes:
      case Opcode::BinBytes8:
        return push(Value::bytes(std::string(a)));
      case Opcode::EmptyList:
      case Opcode::EmptySet:
        return push(Value::list());
      case Opcode::EmptyTuple:
        return push(Value::tuple());
      case Opcode::EmptyDict:
        return push(Value::dict());
      case Opcode::Mark:
        return marks_.push_back(stack_.size());
      case Opcode::Pop:
        pop();
        return;
      case Opcode::Tuple:
        return push(Value::tuple(pop_to_mark()));
      case Opcode::Tuple1:
        return push_tuple(1);
      case Opcode::Tuple2:
        return push_tuple(2);
      case Opcode::Tuple3:
        return push_tuple(3);
      case Opcode::Append: {
        Value item = pop();
        return top().push_back(std::move(item));
      }
      case Opcode::Appends:
      case Opcode::AddItems: {
        for (Value& item : pop_to_mark()) top().push_back(std::move(item));
        return;
      }
      case Opcode::SetItem: {
        Value value = pop(), key = pop();
        return top().set(key, std::move(value));
      }
      case Opcode::SetItems: {
        std::vector<Value> items = pop_to_mark();
        if (items.size() % 2) refuse("a key without a value");
        set_all(top(), std::move(items));
        return;
      }
      case Opcode::BinPut:
        return remember(little_endian<uint8_t>(a));
      case Opcode::LongBinPut:
        return remember(little_endian<uint32_t>(a));
      case Opcode::Memoize:
        return remember(memo_.size());
      case Opcode::BinGet:
        return recall(little_endian<uint8_t>(a));
      case Opcode::LongBinGet:
        return recall(little_endian<uint32_t>(a));
      case Opcode::Global: {
        std::string name(a);
        name[name.find('\n')] = '.';
        return push(Value::name(std::move(name)));
      }
      case Opcode::StackGlobal: {
        const Value name = pop(), module = pop();
        return push(Value::name(module.as_string() + "." + name.as_string()));
      }
      case Opcode::Reduce: {
        const Value arguments = pop(), function = pop();
        if (function.kind() != Value::Kind::Name || arguments.kind() != Value::Kind::Tuple)
          refuse("the pickle calls what is no function");
        return push(call(function.as_string(), arguments));
      }
      case Opcode::NewObj: {
        pop();
        const Value cls = pop();
        if (cls.kind() != Value::Kind::Name) refuse("an object of what is no class");
        refuse_name(cls.as_string());
      }
      case Opcode::Build:
        pop();  // the attributes of a dict or a tensor: nothing here has any
        top();
        return;
      case Opcode::BinPersId:
        return push(storage(pop()));
      default:
        refuse(cat("Unsupported operand ", static_cast<int>(i.opcode)));
    }
  }

  void push_long(std::string_view bytes) {
    if (bytes.size() > 8) refuse("an integer of more than 64 bits");
    // Two's complement, as short as it can be.
    int64_t v = !bytes.empty() && (bytes.back() & 0x80) ? -1 : 0;
    if (!bytes.empty()) std::memcpy(&v, bytes.data(), bytes.size());
    push(v);
  }

  void remember(uint64_t place) { memo_[place] = top(); }

  void recall(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) refuse(cat("Memo value not found at index ", place));
    push(found->second);
  }

  static void set_all(const Value& dict, std::vector<Value> items) {
    if (dict.kind() != Value::Kind::Dict) refuse("items set in what is no dict");
    for (size_t i = 0; i < items.size(); i += 2) dict.set(items[i], std::move(items[i + 1]));
  }

  [[noreturn]] static void refuse_name(const std::string& name) {
    refuse("Unsupported global: GLOBAL " + name +
           " was not an allowed global by default. From C++, files of tensors, plain values and containers can be "
           "loaded; save a state_dict() instead of a whole object.");
  }

  static const Value& argument(const Value& arguments, size_t i) {
    if (i >= arguments.size()) refuse("a call with too few arguments");
    return arguments[i];
  }

  static DimVector dims(const Value& value) {
    DimVector sizes;
    for (const Value& item : value.as_list()) sizes.push_back(item.as_int());
    return sizes;
  }

  Value call(const std::string& name, const Value& arguments) {
    if (name == "torch._utils._rebuild_tensor" || name == "torch._utils._rebuild_tensor_v2" ||
        name == "torch._utils._rebuild_tensor_v3")
      return rebuild_tensor(name, arguments);
    if (name == "torch._utils._rebuild_parameter" || name == "torch._utils._rebuild_parameter_with_state") {
      Tensor data = argument(arguments, 0).as_tensor().detach();
      data.requires_grad_(argument(arguments, 1).as_bool());
      return data;
    }
    if (name == "torch._tensor._rebuild_from_type_v2")
      return call(argument(arguments, 0).as_string(), argument(arguments, 2));
    if (name == "collections.OrderedDict") {
      const Value made = Value::dict();
      if (arguments.size() > 0)
        for (const Value& pair : arguments[0].as_list()) made.set(argument(pair, 0), argument(pair, 1));
      return made;
    }
    if (name == "torch.serialization._get_layout") return argument(arguments, 0);
    if (name == "torch._utils._rebuild_sparse_tensor")
      return rebuild_sparse(argument(arguments, 0).as_string(), argument(arguments, 1));
    if (name == "torch.Size") return Value::tuple(argument(arguments, 0).as_list());
    if (name == "torch.device") return argument(arguments, 0);
    if (name == "_codecs.encode") return Value::bytes(latin1(argument(arguments, 0).as_string()));
    if (name == "__builtin__.set" || name == "builtins.set") return Value::list(argument(arguments, 0).as_list());
    refuse_name(name);
  }

  static std::string latin1(const std::string& utf8) {
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

  Value rebuild_tensor(const std::string& name, const Value& arguments) {
    const Tensor storage = argument(arguments, 0).as_tensor();
    DType dtype = storage.dtype();
    size_t metadata = 6;
    if (name.back() == '3') {
      dtype = dtype_named(argument(arguments, 6).as_string());
      metadata = 7;
    }
    Tensor t = view_storage(storage.storage(), dtype, argument(arguments, 1).as_int(), dims(argument(arguments, 2)),
                            dims(argument(arguments, 3)));
    if (arguments.size() > metadata && arguments[metadata].kind() == Value::Kind::Dict) {
      if (arguments[metadata].find("conj")) t = t.conj();
      if (arguments[metadata].find("neg")) t = _neg_view(t);
    }
    if (arguments.size() > 4 && arguments[4].as_bool()) t.requires_grad_(true);
    return t;
  }

  static Value rebuild_sparse(const std::string& layout, const Value& parts) {
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

  static DType dtype_named(std::string_view full) {
    for (int i = 0; i < kNumDTypes; ++i)
      if (full == cat("torch.", mica::name(static_cast<DType>(i)))) return static_cast<DType>(i);
    refuse(cat("no dtype is called ", full));
  }

  Value storage(const Value& id) {
    const auto& parts = id.as_list();
    if (parts.size() < 5 || parts[0].as_string() != "storage") refuse("a persistent id that is no storage");
    const std::string& kind = parts[1].as_string();
    StorageReference reference{parts[2].as_string(), parts[3].as_string(),
                               storage_class_dtype(kind.substr(kind.rfind('.') + 1)), parts[4].as_int()};
    if (reference.dtype == DType::Undefined) refuse_name(kind);
    if (reference.count < 0) refuse(cat("a storage of ", reference.count, " elements"));
    const Storage fetched = fetch_(reference);
    return Tensor::adopt(TensorImpl::create(fetched, reference.dtype, fetched->device(), {reference.count}, {1}, 0));
  }

  PickleLexer lexer_;
  const std::function<Storage(const StorageReference&)>& fetch_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Value> memo_;
};

}  // namespace

Value unpickle(std::string_view pickle, const std::function<Storage(const StorageReference&)>& fetch) {
  return PickleReader(pickle, fetch).run();
}

}  // namespace mica::io
