#include "compiler/segment_builder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace mica::recording {

namespace {

bool is_comparison(SimpleKernel k) { return k >= SimpleKernel::Lt && k <= SimpleKernel::Eq; }
// The input of a kernel that is a truth value, or -1 where there is none.
int truth_of(SimpleKernel k) { return k == SimpleKernel::Where ? 0 : k == SimpleKernel::MaskedFill ? 1 : -1; }

// Whether one call of the code computes a whole piece.
bool is_one_nest(const Segment& segment, const PieceShape& piece) {
  PreparedSegment prepared;
  prepare(prepared, segment, piece);
  return prepared.outer == 0;
}

}  // namespace

void SegmentBuilder::begin(const Call& call) {
  shape_ = call.shape;
  ndim_ = call.ndim;
  segment_.shape = call.shape;
  segment_.inner = ndim_ - 1;
  while (segment_.inner > piece_.cut && extent(segment_.inner) == 1) --segment_.inner;
}

// The kind of the stream that reads or writes an operand, or -1 where there is none: its elements along a row are
// neither dense nor all the same one.
int SegmentBuilder::kind_of(const Operand& o) const {
  const int64_t stride = o.strides[segment_.inner];
  const auto dense = o.dtype == DType::Bool ? Program::kTruth : Program::kDense;
  if (stride == Program::bytes_of(dense) || extent(segment_.inner) == 1) return dense;
  return stride == 0 && dense == Program::kDense ? Program::kOneValue : -1;
}

bool SegmentBuilder::same_place(const Operand& a, const Operand& b) const {
  if (a.offset != b.offset || a.dtype != b.dtype) return false;
  for (int d = 0; d < ndim_; ++d)
    if (shape_[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

// Whether two accesses of a storage have no element in common because they are different parts of the same rows.
bool SegmentBuilder::apart(const Operand& a, const Operand& b) const {
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

// Whether rows are short and the next row does not follow the one before it in memory. Then the lines of a cache are
// not written one after the other (Program::Store::ahead).
bool SegmentBuilder::rows_are_apart(const Operand& o) const {
  constexpr int64_t kShortRow = 4096;
  const int64_t run = shape_[segment_.inner] * 4;
  int d = segment_.inner - 1;
  while (d >= 0 && shape_[d] == 1) --d;
  return d >= 0 && run <= kShortRow && o.strides[d] != run;
}

// The place that is exactly this operand, or null. Sets `elsewhere` where the segment writes other elements of the
// storage that this operand may have in common with it: its value is then not known.
SegmentBuilder::Known* SegmentBuilder::find(const Operand& o, bool& elsewhere) {
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

// The value of a constant, or -1 where there are too many. Constants are told apart by their bits.
int SegmentBuilder::constant(float value) {
  for (int i = 0; i < program_.constants; ++i)
    if (std::memcmp(&segment_.constants[i], &value, sizeof value) == 0) return Program::constant(i);
  if (program_.constants == Program::kConstants) return -1;
  segment_.constants[program_.constants] = value;
  return Program::constant(program_.constants++);
}

// The value of an input, which becomes a new stream where the program does not have it yet. -1 where that is not
// possible.
int SegmentBuilder::value_of(const Operand& o, DType wanted) {
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

int SegmentBuilder::step(Op op, int a, int b, int c) {
  if (program_.steps == Program::kSteps || a < 0 || b < 0 || c < 0) return -1;
  const uint8_t result = Program::result(program_.steps);
  program_.code[program_.steps++] = {op, result, static_cast<uint8_t>(a), static_cast<uint8_t>(b),
                                     static_cast<uint8_t>(c)};
  return result;
}

// Notes that an operand has a new value. Returns false where the program could not store it.
bool SegmentBuilder::write(const Operand& o, DType made, int value) {
  bool elsewhere = false;
  Known* known = find(o, elsewhere);
  // What a call reads in another place of the same storage would be overwritten before the next row reads it.
  for (int i = 0; i < known_count_; ++i)
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

bool SegmentBuilder::add(const Call& call) {
  if (!is_pointwise(call) || call.noutputs != 1 || call.ndim <= piece_.cut) return false;
  if (simple_kernel_of(call) < 0) return false;
  const auto kernel = static_cast<SimpleKernel>(simple_kernel_of(call));
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

bool SegmentBuilder::add_sum(const Call& call) {
  if (kSumLanes == 0 || !is_sum_or_mean(call) || !shape_) return false;
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
  segment_.divisor = is_mean(call) ? static_cast<double>(count) : 1.0;
  known_[known_count_++] = {&out,
                            static_cast<uint8_t>(value),
                            static_cast<int8_t>(stream),
                            static_cast<uint8_t>(std::max(program_.steps - 1, 0)),
                            true,
                            true};
  return true;
}

// Lets the program store a value, in the stream that it was read from or in a new one.
bool SegmentBuilder::store(Known& k) {
  if (k.operand->dtype == DType::Bool) return false;  // truth values stay in registers
  const bool ahead = k.stream < 0 && in_memory_[k.operand->slot] && rows_are_apart(*k.operand);
  if (k.stream < 0) {
    if (program_.streams == Program::kStreams) return false;
    k.stream = static_cast<int8_t>(program_.streams);
    segment_.operands[program_.streams] = k.operand;
    program_.kinds[program_.streams++] = Program::kDense;
  }
  program_.stored[program_.stores++] = {k.step, k.value, static_cast<uint8_t>(k.stream), ahead};
  return true;
}

bool SegmentBuilder::make_code(Segment& segment, bool alone) {
  segment_.streams = program_.streams;
  std::copy(program_.kinds, program_.kinds + program_.streams, segment_.kinds);
  // Nothing else stores between the rows of such a segment: its lines need not be asked for ahead.
  if (alone && is_one_nest(segment_, piece_))
    for (int i = 0; i < program_.stores; ++i) program_.stored[i].ahead = false;
  segment_.code = code_of(program_);
  segment = segment_;
  return segment.code != nullptr;
}

}  // namespace mica::recording
