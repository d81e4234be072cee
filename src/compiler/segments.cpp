#include "compiler/segments.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "mica/core/scalar.h"

namespace mica::recording {

namespace {

// The kernels that are a few instructions. Each is translated as it is written in backends/cpu/pointwise.
// clang-format off
enum class Kernel {
  Add, Sub, Rsub, Mul, Div, Neg, Abs, Sqrt, Rsqrt, Reciprocal, Pow, Max, Min, Clamp, Relu, Addcmul, Addcdiv, Lerp, Copy,
  SigmoidBackward, TanhBackward, ThresholdBackward, Lt, Le, Gt, Ge, Eq, Where, MaskedFill
};
const std::unordered_map<std::string_view, Kernel>& kernels() {
  static const auto* all = new std::unordered_map<std::string_view, Kernel>{
      {"add", Kernel::Add}, {"sub", Kernel::Sub}, {"rsub", Kernel::Rsub}, {"mul", Kernel::Mul}, {"div", Kernel::Div},
      {"neg", Kernel::Neg}, {"abs", Kernel::Abs}, {"sqrt", Kernel::Sqrt},
#if defined(__aarch64__)  // elsewhere it depends on the vectors that kernels were chosen for
      {"rsqrt", Kernel::Rsqrt},
#endif
      {"reciprocal", Kernel::Reciprocal}, {"pow", Kernel::Pow}, {"maximum", Kernel::Max}, {"minimum", Kernel::Min},
      {"clamp", Kernel::Clamp}, {"clamp_min", Kernel::Max}, {"clamp_max", Kernel::Min}, {"relu", Kernel::Relu},
      {"addcmul", Kernel::Addcmul}, {"addcdiv", Kernel::Addcdiv}, {"lerp", Kernel::Lerp}, {"copy", Kernel::Copy},
      {"sigmoid_backward", Kernel::SigmoidBackward}, {"tanh_backward", Kernel::TanhBackward},
      {"threshold_backward", Kernel::ThresholdBackward}, {"lt", Kernel::Lt}, {"le", Kernel::Le}, {"gt", Kernel::Gt},
      {"ge", Kernel::Ge}, {"eq", Kernel::Eq}, {"where", Kernel::Where}, {"masked_fill", Kernel::MaskedFill}};
  return *all;
}
// clang-format on

// The kernel of a call, or -1. Names are few texts of the program: each is looked up once, and kept as its address with
// the answer behind it.
int kernel_of(const Call& call) {
  static std::atomic<uint64_t> seen[128];
  const auto name = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(call.name));
  std::atomic<uint64_t>& place = seen[name / 4 % std::size(seen)];
  const uint64_t known = place.load(std::memory_order_relaxed);
  if (known >> 8 == name) return static_cast<int>(known & 255) - 1;
  const auto found = kernels().find(call.name);
  const int kernel = found == kernels().end() ? -1 : static_cast<int>(found->second);
  place.store(name << 8 | static_cast<uint64_t>(kernel + 1), std::memory_order_relaxed);
  return kernel;
}

bool is_comparison(Kernel k) { return k >= Kernel::Lt && k <= Kernel::Eq; }
// Which input is a truth value, or -1.
int truth_of(Kernel k) { return k == Kernel::Where ? 0 : k == Kernel::MaskedFill ? 1 : -1; }

const Scalar& argument(const Call& call) {
  return std::get<0>(*reinterpret_cast<const std::tuple<Scalar>*>(call.arguments));
}
bool is_one(const Scalar& s) { return s == Scalar(1) || s == Scalar(true); }

// Calls that become one program, as long as they can.
class Builder {
 public:
  Builder(const PieceShape& piece, const std::vector<char>& in_memory) : piece_(piece), in_memory_(in_memory) {}

  bool add(const Call& call);
  // The sum or mean of each row of what was computed, as the last call of the segment.
  bool add_sum(const Call& call);
  // The finished segment; false where there is no code for it. `needed(slot)`: somebody reads it afterwards; `alone`:
  // nothing else runs between its pieces.
  template <class Needed>
  bool finish(Segment& segment, const Needed& needed, bool alone);
  // What is written element by element.
  template <class Visit>
  void each_written(const Visit& visit) const {
    for (int i = 0; i < known_count_; ++i)
      if (known_[i].written && !known_[i].is_sum) visit(known_[i].operand->slot);
  }

 private:
  static constexpr int kKnown = 24;
  struct Known {
    const Operand* operand;
    uint8_t value;  // what it holds now
    int8_t stream;  // -1: it was not read from memory
    uint8_t step;   // that made the value
    bool written;
    bool is_sum = false;  // of a row: it is known after the row
  };
  bool begin(const Call& call);
  bool same_place(const Operand& a, const Operand& b) const;
  bool apart(const Operand& a, const Operand& b) const;
  Known* find(const Operand& o, bool& elsewhere);
  int value_of(const Operand& o, DType wanted);
  int constant(float value);
  int step(Op op, int a, int b = 0, int c = 0);
  int translate(Kernel kernel, const Call& call, const int* v);
  bool write(const Operand& o, DType made, int value);
  int kind_of(const Operand& o) const;
  bool rows_are_apart(const Operand& o) const;
  int64_t extent(int d) const { return d == piece_.cut ? piece_.range : shape_[d]; }

  const PieceShape piece_;
  const std::vector<char>& in_memory_;
  Program program_;
  Segment segment_;
  Known known_[kKnown];
  int known_count_ = 0;
  const int64_t* shape_ = nullptr;
  int ndim_ = 0;
};

bool Builder::begin(const Call& call) {
  shape_ = call.shape;
  ndim_ = call.ndim;
  segment_.shape = call.shape;
  segment_.inner = ndim_ - 1;
  while (segment_.inner > piece_.cut && extent(segment_.inner) == 1) --segment_.inner;
  return true;
}

// -1: neither dense nor one value.
int Builder::kind_of(const Operand& o) const {
  const int64_t stride = o.strides[segment_.inner];
  const auto dense = o.dtype == DType::Bool ? Program::kTruth : Program::kDense;
  if (stride == Program::bytes_of(dense) || extent(segment_.inner) == 1) return dense;
  return stride == 0 && dense == Program::kDense ? Program::kOneValue : -1;
}

bool Builder::same_place(const Operand& a, const Operand& b) const {
  if (a.offset != b.offset || a.dtype != b.dtype) return false;
  for (int d = 0; d < ndim_; ++d)
    if (shape_[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

// Whether two accesses of a storage touch no element both: halves of the same rows.
bool Builder::apart(const Operand& a, const Operand& b) const {
  if (a.dtype != b.dtype || kind_of(a) != Program::kDense) return false;
  const int64_t distance = std::abs(a.offset - b.offset), run = shape_[segment_.inner] * 4;
  int64_t step = 0;  // from one row to the next
  for (int d = 0; d < ndim_; ++d) {
    if (shape_[d] == 1) continue;
    if (a.strides[d] != b.strides[d]) return false;
    if (d != segment_.inner && (step == 0 || a.strides[d] < step)) step = a.strides[d];
  }
  for (int d = 0; d < ndim_; ++d)
    if (d != segment_.inner && shape_[d] != 1 && (step <= 0 || a.strides[d] % step != 0)) return false;
  return distance >= run && (step == 0 || distance + run <= step);
}

// Whether what is written has gaps, or another order, from one short row to the next.
bool Builder::rows_are_apart(const Operand& o) const {
  constexpr int64_t kShortRow = 4096;
  const int64_t run = shape_[segment_.inner] * 4;
  int d = segment_.inner - 1;
  while (d >= 0 && shape_[d] == 1) --d;
  return d >= 0 && run <= kShortRow && o.strides[d] != run;
}

Builder::Known* Builder::find(const Operand& o, bool& elsewhere) {
  Known* found = nullptr;
  for (int i = 0; i < known_count_; ++i) {
    if (known_[i].operand->slot != o.slot) continue;
    if (known_[i].is_sum) {
      elsewhere = true;
    } else if (same_place(*known_[i].operand, o)) {
      found = &known_[i];
    } else {
      elsewhere |= known_[i].written && !apart(*known_[i].operand, o);
    }
  }
  return found;
}

int Builder::constant(float value) {
  for (int i = 0; i < program_.constants; ++i)
    if (std::memcmp(&segment_.constants[i], &value, sizeof value) == 0) return Program::constant(i);
  if (program_.constants == Program::kConstants) return -1;
  segment_.constants[program_.constants] = value;
  return Program::constant(program_.constants++);
}

int Builder::value_of(const Operand& o, DType wanted) {
  if (o.dtype != wanted || (!o.storage && wanted != DType::Float32)) return -1;
  if (!o.storage) {
    float number;
    std::memcpy(&number, o.number, sizeof number);
    return constant(number);
  }
  bool elsewhere = false;
  if (const Known* known = find(o, elsewhere); known && !elsewhere) return known->value;
  const int kind = kind_of(o);
  if (elsewhere || kind < 0 || known_count_ == kKnown || program_.streams == Program::kStreams) return -1;
  const int stream = program_.streams++;
  segment_.operands[stream] = &o;
  program_.kinds[stream] = static_cast<Program::Kind>(kind);
  known_[known_count_++] = {&o, Program::stream(stream), static_cast<int8_t>(stream), 0, false};
  return Program::stream(stream);
}

int Builder::step(Op op, int a, int b, int c) {
  if (program_.steps == Program::kSteps || a < 0 || b < 0 || c < 0) return -1;
  const uint8_t result = Program::result(program_.steps);
  program_.code[program_.steps++] = {op, result, static_cast<uint8_t>(a), static_cast<uint8_t>(b),
                                     static_cast<uint8_t>(c)};
  return result;
}

// The value of the result, or -1. `v` are the values of the inputs.
int Builder::translate(Kernel kernel, const Call& call, const int* v) {
  const auto scaled = [&](const Scalar& alpha) {
    return step(Op::MulAdd, constant(static_cast<float>(alpha.to_double())), v[1], v[0]);
  };
  switch (kernel) {
    case Kernel::Add:
      return is_one(argument(call)) ? step(Op::Add, v[0], v[1]) : scaled(argument(call));
    case Kernel::Sub:
      return is_one(argument(call)) ? step(Op::Sub, v[0], v[1]) : scaled(-argument(call));
    case Kernel::Rsub:
      return step(Op::NegMulAdd, constant(static_cast<float>(argument(call).to_double())), v[0], v[1]);
    case Kernel::Mul:
      return step(Op::Mul, v[0], v[1]);
    case Kernel::Div:
      return step(Op::Div, v[0], v[1]);
    case Kernel::Neg:
      return step(Op::Neg, v[0]);
    case Kernel::Abs:
      return step(Op::Abs, v[0]);
    case Kernel::Sqrt:
      return step(Op::Sqrt, v[0]);
    case Kernel::Rsqrt:
      return step(Op::Div, constant(1), step(Op::Sqrt, v[0]));
    case Kernel::Reciprocal:
      return step(Op::Div, constant(1), v[0]);
    case Kernel::Pow: {
      if (call.operands[2].storage) return -1;
      float exponent;
      std::memcpy(&exponent, call.operands[2].number, sizeof exponent);
      if (exponent == 2) return step(Op::Mul, v[0], v[0]);
      if (exponent == 3) return step(Op::Mul, step(Op::Mul, v[0], v[0]), v[0]);
      if (exponent == 0.5f) return step(Op::Sqrt, v[0]);
      if (exponent == -1) return step(Op::Div, constant(1), v[0]);
      if (exponent == -2) return step(Op::Div, constant(1), step(Op::Mul, v[0], v[0]));
      return -1;
    }
    case Kernel::Max:
      return step(Op::Max, v[0], v[1]);
    case Kernel::Min:
      return step(Op::Min, v[0], v[1]);
    case Kernel::Clamp:
      return step(Op::Min, step(Op::Max, v[0], v[1]), v[2]);
    case Kernel::Relu:
      return step(Op::Relu, v[0]);
    case Kernel::Addcmul: {
      if (is_one(argument(call))) return step(Op::MulAdd, v[1], v[2], v[0]);
      const int product = step(Op::Mul, constant(static_cast<float>(argument(call).to_double())), v[1]);
      return step(Op::MulAdd, product, v[2], v[0]);
    }
    case Kernel::Addcdiv: {
      const int product = step(Op::Mul, constant(static_cast<float>(argument(call).to_double())), v[1]);
      return step(Op::Add, v[0], step(Op::Div, product, v[2]));
    }
    case Kernel::Lerp: {
      if (call.operands[3].storage) return -1;
      float weight;
      std::memcpy(&weight, call.operands[3].number, sizeof weight);
      const int way = step(Op::Sub, v[1], v[0]);
      if (std::abs(weight) < 0.5f) return step(Op::MulAdd, constant(weight), way, v[0]);
      return step(Op::NegMulAdd, way, constant(1 - weight), v[1]);
    }
    case Kernel::Copy:
      return v[0];
    case Kernel::SigmoidBackward:
      return step(Op::Mul, v[0], step(Op::Mul, step(Op::Sub, constant(1), v[1]), v[1]));
    case Kernel::TanhBackward:
      return step(Op::Mul, v[0], step(Op::NegMulAdd, v[1], v[1], constant(1)));
    case Kernel::ThresholdBackward: {
      const int bound = constant(static_cast<float>(argument(call).to_double()));
      return step(Op::Select, step(Op::LessEqual, v[1], bound), constant(0), v[0]);
    }
    case Kernel::Lt:
      return step(Op::Less, v[0], v[1]);
    case Kernel::Le:
      return step(Op::LessEqual, v[0], v[1]);
    case Kernel::Gt:
      return step(Op::Less, v[1], v[0]);
    case Kernel::Ge:
      return step(Op::LessEqual, v[1], v[0]);
    case Kernel::Eq:
      return step(Op::Equal, v[0], v[1]);
    case Kernel::Where:
      return step(Op::Select, v[0], v[1], v[2]);
    case Kernel::MaskedFill:
      return step(Op::Select, v[1], v[2], v[0]);
  }
  return -1;
}

bool Builder::write(const Operand& o, DType made, int value) {
  bool elsewhere = false;
  Known* known = find(o, elsewhere);
  for (int i = 0; i < known_count_; ++i)  // what was read in another place of it is read again in the next row
    elsewhere |= known_[i].operand->slot == o.slot && &known_[i] != known && !apart(*known_[i].operand, o);
  const int kind = kind_of(o);
  if (elsewhere || o.dtype != made || (kind != Program::kDense && kind != Program::kTruth)) return false;
  const auto last = static_cast<uint8_t>(std::max(program_.steps - 1, 0));
  if (known) {
    known->value = static_cast<uint8_t>(value);
    known->step = last;
    known->written = true;
    return true;
  }
  if (known_count_ == kKnown) return false;
  known_[known_count_++] = {&o, static_cast<uint8_t>(value), -1, last, true};
  return true;
}

bool Builder::add(const Call& call) {
  if (!is_pointwise(call) || call.noutputs != 1 || call.ndim <= piece_.cut) return false;
  if (kernel_of(call) < 0) return false;
  const auto kernel = static_cast<Kernel>(kernel_of(call));
  if (is_comparison(kernel) && in_memory_[call.operands[0].slot]) return false;
  if (!shape_) {
    begin(call);
  } else if (call.ndim != ndim_ || !std::equal(shape_, shape_ + ndim_, call.shape)) {
    return false;
  }
  const Program before = program_;
  const int known_before = known_count_;
  int values[kOperands];
  bool fits = true;
  for (int k = 1; k < call.noperands && fits; ++k)
    fits = (values[k - 1] = value_of(call.operands[k], k - 1 == truth_of(kernel) ? DType::Bool : DType::Float32)) >= 0;
  const int result = fits ? translate(kernel, call, values) : -1;
  if (result >= 0 && write(call.operands[0], is_comparison(kernel) ? DType::Bool : DType::Float32, result)) return true;
  program_ = before;
  known_count_ = known_before;
  return false;
}

// Whether the code runs once for a piece.
bool is_one_nest(const Segment& segment, const PieceShape& piece) {
  PreparedSegment prepared;
  prepare(prepared, segment, piece);
  return prepared.outer == 0;
}

bool Builder::add_sum(const Call& call) {
  const std::string_view name = call.name;
  if (kSumLanes == 0 || is_pointwise(call) || (name != "reduce_sum" && name != "reduce_mean") || !shape_) return false;
  const Operand &out = call.operands[0], &in = call.operands[1];
  const int64_t count = shape_[ndim_ - 1];
  if (segment_.inner != ndim_ - 1 || call.ndim != ndim_ - 1 || in.ndim != ndim_ || out.dtype != DType::Float32 ||
      !std::equal(shape_, shape_ + ndim_, in.sizes) || count < 8 || count % std::max(kSumLanes, 1) != 0)
    return false;
  for (int i = 0; i < known_count_; ++i)
    if (known_[i].operand->slot == out.slot) return false;
  const int value = value_of(in, DType::Float32);
  if (value < 0 || known_count_ == kKnown || program_.streams == Program::kStreams) return false;
  const int stream = program_.streams++;
  segment_.operands[stream] = &out;
  program_.kinds[stream] = Program::kRowSum;
  segment_.divisor = name == "reduce_mean" ? static_cast<double>(count) : 1.0;
  known_[known_count_++] = {&out,
                            static_cast<uint8_t>(value),
                            static_cast<int8_t>(stream),
                            static_cast<uint8_t>(std::max(program_.steps - 1, 0)),
                            true,
                            true};
  return true;
}

template <class Needed>
bool Builder::finish(Segment& segment, const Needed& needed, bool alone) {
  for (int i = 0; i < known_count_; ++i) {
    Known& k = known_[i];
    if (!k.written || (!needed(k.operand->slot) && !k.is_sum)) continue;
    if (k.operand->dtype == DType::Bool) return false;  // truth values stay in registers
    const bool ahead = k.stream < 0 && in_memory_[k.operand->slot] && rows_are_apart(*k.operand);
    if (k.stream < 0) {
      if (program_.streams == Program::kStreams) return false;
      k.stream = static_cast<int8_t>(program_.streams);
      segment_.operands[program_.streams] = k.operand;
      program_.kinds[program_.streams++] = Program::kDense;
    }
    program_.stored[program_.stores++] = {k.step, k.value, static_cast<uint8_t>(k.stream), ahead};
  }
  segment_.streams = program_.streams;
  std::copy(program_.kinds, program_.kinds + program_.streams, segment_.kinds);
  if (alone && is_one_nest(segment_, piece_))
    for (int i = 0; i < program_.stores; ++i) program_.stored[i].ahead = false;
  segment_.code = code_of(program_);
  segment = segment_;
  return segment.code != nullptr;
}

}  // namespace

bool is_simple(const Call& call) { return is_pointwise(call) && call.noutputs == 1 && kernel_of(call) >= 0; }

std::vector<int> schedule(const std::vector<int>& members, const Call* calls, int slots) {
  // Calls that are to be neighbours. From the last call to the first, each joins the latest set that it can be moved
  // to.
  struct Set {
    std::vector<int> calls;  // the last one first
    std::vector<bool> reads, writes;
    bool simple;
  };
  constexpr size_t kAhead = 16;
  std::vector<Set> sets;                                     // the last one first
  const auto uses = [&](const Set& set, const Call& call) {  // whether the call must come before the set
    for (int k = 0; k < call.noperands; ++k) {
      const Operand& o = call.operands[k];
      if (o.storage && (set.writes[o.slot] || (k < call.noutputs && set.reads[o.slot]))) return true;
    }
    return false;
  };
  for (auto c = members.rbegin(); c != members.rend(); ++c) {
    const Call& call = calls[*c];
    const bool simple = is_simple(call);
    Set* chosen = nullptr;
    for (size_t i = 0; simple && i < std::min(sets.size(), kAhead); ++i) {
      Set& set = sets[sets.size() - 1 - i];
      const Call& other = calls[set.calls[0]];
      if (set.simple && other.ndim == call.ndim && std::equal(call.shape, call.shape + call.ndim, other.shape))
        chosen = &set;
      if (uses(set, call)) break;
    }
    if (!chosen) {
      sets.push_back({{}, std::vector<bool>(slots), std::vector<bool>(slots), simple});
      chosen = &sets.back();
    }
    chosen->calls.push_back(*c);
    for (int k = 0; k < call.noperands; ++k)
      if (call.operands[k].storage) (k < call.noutputs ? chosen->writes : chosen->reads)[call.operands[k].slot] = true;
  }
  std::vector<int> order;
  for (auto set = sets.rbegin(); set != sets.rend(); ++set)
    order.insert(order.end(), set->calls.rbegin(), set->calls.rend());
  return order;
}

std::vector<Unit> make_units(const std::vector<int>& order, const Call* calls, const PieceShape& piece,
                             const std::vector<char>& in_memory, std::vector<Segment>& segments,
                             std::vector<char>& in_registers, int least) {
  const int count = static_cast<int>(order.size());
  std::vector<int> earliest(in_memory.size(), count), last(in_memory.size(), -1);
  for (int i = 0; i < count; ++i)
    for (int k = 0; k < calls[order[i]].noperands; ++k)
      if (const Operand& o = calls[order[i]].operands[k]; o.storage)
        earliest[o.slot] = std::min(earliest[o.slot], i), last[o.slot] = i;
  std::vector<Unit> units;
  for (int first = 0, most = count; first < count;) {
    Builder builder(piece, in_memory);
    int end = first;
    while (end < count && end - first < most && builder.add(calls[order[end]])) ++end;
    if (end > first && end < count && end - first < most && builder.add_sum(calls[order[end]])) ++end;
    const auto needed = [&](int slot) { return in_memory[slot] || last[slot] >= end; };
    Segment segment;
    if (end - first >= least && builder.finish(segment, needed, end - first == count)) {
      builder.each_written([&](int slot) { in_registers[slot] = earliest[slot] >= first && !needed(slot); });
      segments.push_back(segment);
      units.push_back({first, end - first, static_cast<int>(segments.size()) - 1});
    } else if (end - first > 2) {
      most = (end - first) / 2;  // it takes more registers or streams than there are
      continue;
    } else {
      end = first + 1;
      units.push_back({first, 1});
    }
    first = end;
    most = count;
  }
  return units;
}

}  // namespace mica::recording
