#include <bit>
#include <cstring>
#include <unordered_map>

#include "io/pickle_builders.h"
#include "io/pickle_opcodes.h"
#include "io/pickle_values.h"

namespace mica::io {

namespace {

template <class T>
T little_endian(std::string_view bytes) {
  T v{};
  std::memcpy(&v, bytes.data(), sizeof v);
  return v;
}

bool is_container(const Value& value) {
  return value.kind() == Value::Kind::List || value.kind() == Value::Kind::Tuple || value.kind() == Value::Kind::Dict;
}

// Whether some container is among its own contents, however deep. Walks with a stack of its own.
bool any_holds_itself(const std::vector<Value>& containers) {
  using Items = std::vector<Value>;
  struct Place {
    const Items* items;
    size_t next;
  };
  std::unordered_map<const Items*, bool> open;  // false: everything within has been looked at
  for (const Value& root : containers) {
    if (open.count(&root.items())) continue;
    std::vector<Place> path{{&root.items(), 0}};
    open[&root.items()] = true;
    while (!path.empty()) {
      Place& place = path.back();
      if (place.next == place.items->size()) {
        open[place.items] = false;
        path.pop_back();
        continue;
      }
      const Value& item = (*place.items)[place.next++];
      if (!is_container(item)) continue;
      const auto [known, is_new] = open.emplace(&item.items(), true);
      if (is_new) {
        path.push_back({&item.items(), 0});
      } else if (known->second) {
        return true;
      }
    }
  }
  return false;
}

// The stack machine that a pickle is a program for. A storage is held as a one-dimensional tensor over all of it.
class PickleReader {
 public:
  PickleReader(std::string_view pickle, const std::function<Storage(const StorageReference&)>& fetch)
      : lexer_(pickle), fetch_(fetch) {}
  PickleReader(const PickleReader&) = delete;
  PickleReader& operator=(const PickleReader&) = delete;
  // A container that a failed pickle made may hold itself, and would then never be freed.
  ~PickleReader() {
    if (!finished_)
      for (const Value& container : changeable_) container.clear();
  }

  Value run() {
    for (;;) {
      const Instruction i = lexer_.next();
      if (i.opcode != Opcode::Stop) {
        step(i);
        continue;
      }
      Value result = pop();
      if (any_holds_itself(changeable_)) refuse("a list or dict holds itself");
      finished_ = true;
      return result;
    }
  }

 private:
  void push(Value value) { stack_.push_back(std::move(value)); }

  // A list or dict, which the pickle may still fill.
  void push_changeable(Value value) {
    changeable_.push_back(value);
    push(std::move(value));
  }

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
      case Opcode::ByteArray8:
        return push(Value::bytes(std::string(a)));
      case Opcode::EmptyList:
      case Opcode::EmptySet:
        return push_changeable(Value::list());
      case Opcode::List:
        return push_changeable(Value::list(pop_to_mark()));
      case Opcode::EmptyTuple:
        return push(Value::tuple());
      case Opcode::EmptyDict:
        return push_changeable(Value::dict());
      case Opcode::Mark:
        return marks_.push_back(stack_.size());
      case Opcode::Pop:
        pop();
        return;
      case Opcode::PopMark:
        pop_to_mark();
        return;
      case Opcode::Dup:
        return push(Value(top()));
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
        return push_name(std::move(name));
      }
      case Opcode::StackGlobal: {
        const Value name = pop(), module = pop();
        return push_name(module.as_string() + "." + name.as_string());
      }
      case Opcode::Reduce:
      case Opcode::NewObj: {
        const Value arguments = pop(), function = pop();
        if (function.kind() != Value::Kind::Name || arguments.kind() != Value::Kind::Tuple)
          refuse("the pickle calls what is no function");
        Value made = build(function.as_string(), arguments);
        if (made.kind() == Value::Kind::List || made.kind() == Value::Kind::Dict) changeable_.push_back(made);
        return push(std::move(made));
      }
      case Opcode::Build: {
        const Value state = pop();
        Value& object = top();
        // The state of a dict or a parameter holds attributes, which nothing here keeps.
        if (object.is_tensor() && state.kind() == Value::Kind::Tuple && state.size() >= 4 && state[0].is_tensor())
          object = tensor_from_state(state);
        return;
      }
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

  // A forbidden name is refused where it is named, whether or not it is called.
  void push_name(std::string name) {
    builder_named(name);
    push(Value::name(std::move(name)));
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
  std::vector<Value> changeable_;
  bool finished_ = false;
};

}  // namespace

Value unpickle(std::string_view pickle, const std::function<Storage(const StorageReference&)>& fetch) {
  return PickleReader(pickle, fetch).run();
}

}  // namespace mica::io
