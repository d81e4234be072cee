#include "backends/cuda/gemm/tails.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "backends/cuda/fused/codes.h"
#include "mica/backend/kernel_types.h"

namespace mica::cuda {

namespace {

// A value that a loop computes: the instruction that does it, and the values that it is computed of.
struct Value {
  const FusedInstruction* step = nullptr;
  const Value* in[3] = {};

  bool is(FusedCode code, DType dtype) const {
    return step && step->code == static_cast<int16_t>(code) && step->dtype == dtype;
  }
};

// What a loop stores, as values.
class Stored {
 public:
  explicit Stored(const FusedLoop& loop);
  Stored(const Stored&) = delete;
  const Value* value(int operand) const { return stored_[static_cast<size_t>(operand)]; }
  const std::vector<int>& operands() const { return operands_; }  // those that are stored

 private:
  std::array<Value, kFusedInstructions> values_;
  std::array<const Value*, kFusedOperands> stored_{};
  std::vector<int> operands_;
};

// What a copy that changes no dtype copies; else the value itself.
const Value* without_copy(const Value* value) {
  const bool same = value->in[0] && value->is(FusedCode::Copy, value->in[0]->step->dtype);
  return same ? value->in[0] : value;
}

Stored::Stored(const FusedLoop& loop) {
  const Value* registers[kFusedRegisters] = {};
  const Value* last = nullptr;
  for (int i = 0; i < loop.ninstructions; ++i) {
    const FusedInstruction& step = loop.instructions[i];
    Value& value = values_[static_cast<size_t>(i)];
    value.step = &step;
    for (int k = 0; k < step.inputs; ++k)
      if (step.in[k] != FusedInstruction::kNumber)
        value.in[k] = without_copy(step.in[k] == FusedInstruction::kLast ? last : registers[step.in[k]]);
    if (step.code == FusedInstruction::kStore) {
      stored_[step.operand] = value.in[0];
      operands_.push_back(step.operand);
      continue;  // the last result stays what it is
    }
    last = &value;
    if (step.out >= 0) registers[step.out] = last;
  }
}

// Whether a value is the sum, or the product, of two. Calls found(a, b) with them in both orders until it returns true.
template <class F>
bool is_of_two(const Value* value, FusedCode code, DType dtype, const F& found) {
  if (!value->is(code, dtype) || !value->in[0] || !value->in[1]) return false;
  if (code == FusedCode::AddScaled && value->step->parameters[1] == 0) return false;
  return found(value->in[0], value->in[1]) || found(value->in[1], value->in[0]);
}

class Reader {
 public:
  Reader(const FusedProducts& products, const FusedTail& tail)
      : products_(products), tail_(tail), loop_(*tail.loop), dtype_(products.products[0].out.dtype), stored_(loop_) {}
  KnownTail read() const;

 private:
  int loaded(const Value* value) const {
    return value->is(FusedCode::Load, dtype_) ? static_cast<int>(value->step->operand) : -1;
  }
  // The product whose result a value is, or -1.
  int product(const Value* value) const {
    const int operand = loaded(value);
    return operand < 0 ? -1 : tail_.of_product[operand];
  }
  // The operand that a value is, where it is no product's result; or -1.
  int other(const Value* value) const { return product(value) < 0 ? loaded(value) : -1; }
  const FusedLoop::Operand& operand(int k) const { return loop_.operands[k]; }
  bool follows_columns() const;
  bool follows_heads(int operand, int64_t first, int64_t width, int64_t product_width) const;
  bool is_table(int operand) const;
  bool read_sum(KnownTail& tail) const;
  bool read_silu(KnownTail& tail) const;
  bool read_heads(KnownTail& tail) const;
  bool read_rotation(KnownTail& tail) const;

  const FusedProducts& products_;
  const FusedTail& tail_;
  const FusedLoop& loop_;
  const DType dtype_;
  const Stored stored_;
};

// Whether the loop is one over the columns, whose operands lie one element after the other.
bool Reader::follows_columns() const {
  if (loop_.ndim != 1) return false;
  for (int k = 0; k < loop_.noperands; ++k)
    if (operand(k).strides[0] != element_size(dtype_) || operand(k).size != 0 || tail_.column[k] != 0) return false;
  return loop_.shape[0] == products_.products[0].out.sizes[2];
}

bool Reader::read_sum(KnownTail& tail) const {
  const Value* sum = stored_.value(tail.out[0]);
  return products_.count == 1 && !products_.norm &&
         is_of_two(sum, FusedCode::AddScaled, dtype_, [&](const Value* a, const Value* b) {
           tail.kind = KnownTail::Kind::Sum;
           tail.product = product(a);
           tail.row = other(b);
           return tail.product == 0 && tail.row >= 0;
         });
}

bool Reader::read_silu(KnownTail& tail) const {
  const auto is_silu = [&](const Value* value) {
    tail.product = value->is(FusedCode::Silu, dtype_) ? product(value->in[0]) : -1;
    return tail.product >= 0;
  };
  tail.kind = KnownTail::Kind::Silu;
  const Value* value = stored_.value(tail.out[0]);
  if (products_.count == 1) return is_silu(value);
  return products_.count == 2 && is_of_two(value, FusedCode::Mul, dtype_, [&](const Value* a, const Value* b) {
           return is_silu(a) && product(b) == 1 - tail.product;
         });
}

// Whether an operand is a part of each head of a product's result: so many columns from column `first` on.
bool Reader::follows_heads(int k, int64_t first, int64_t count, int64_t width) const {
  const int64_t bytes = element_size(dtype_);
  const FusedLoop::Operand& o = operand(k);
  return tail_.column[k] == first && loop_.shape[loop_.ndim - 1] == count && o.strides[loop_.ndim - 1] == bytes &&
         (loop_.ndim == 1 || o.strides[0] == width * bytes);
}

// Whether an operand has the same numbers for each head.
bool Reader::is_table(int k) const {
  return operand(k).strides[loop_.ndim - 1] == element_size(dtype_) && (loop_.ndim == 1 || operand(k).strides[0] == 0);
}

bool Reader::read_heads(KnownTail& tail) const {
  tail.kind = KnownTail::Kind::Heads;
  const Value* value = stored_.value(tail.out[0]);
  tail.product = product(value);
  tail.width = loop_.shape[loop_.ndim - 1];
  return tail.product >= 0 && follows_heads(loaded(value), 0, tail.width, tail.width);
}

bool Reader::read_rotation(KnownTail& tail) const {
  tail.kind = KnownTail::Kind::Heads;
  tail.rotates = true;
  const int64_t half = loop_.shape[loop_.ndim - 1];
  tail.width = 2 * half;
  const auto is_half = [&](const Value* value, int which) {
    if (product(value) < 0 || !follows_heads(loaded(value), which * half, half, tail.width)) return false;
    if (tail.product >= 0 && tail.product != product(value)) return false;
    tail.product = product(value);
    return true;
  };
  const auto is_table_of = [&](const Value* value, int& found) {
    found = other(value);
    return found >= 0 && is_table(found);
  };
  // One half times a number of a table; with a minus before it, where that is the first half's second term.
  const auto is_term = [&](const Value* value, int which, bool negated, int& table) {
    return is_of_two(value, FusedCode::Mul, dtype_, [&](const Value* a, const Value* b) {
      if (negated && !a->is(FusedCode::Neg, dtype_)) return false;
      return is_half(negated ? a->in[0] : a, which) && is_table_of(b, table);
    });
  };
  const auto is_rotated = [&](int which) {
    return is_of_two(stored_.value(tail.out[which]), FusedCode::AddScaled, dtype_, [&](const Value* a, const Value* b) {
      return is_term(a, which, false, tail.cos[which]) && is_term(b, 1 - which, which == 0, tail.sin[which]);
    });
  };
  if (is_rotated(0) && is_rotated(1)) return true;
  std::swap(tail.out[0], tail.out[1]);  // the second half may be stored first
  tail.product = -1;
  return is_rotated(0) && is_rotated(1);
}

KnownTail Reader::read() const {
  const std::vector<int>& outs = stored_.operands();
  if (outs.empty() || outs.size() > 2) return {};
  for (const int out : outs)
    if (operand(out).dtype != dtype_ || operand(out).strides[loop_.ndim - 1] != element_size(dtype_)) return {};
  const auto made = [&] {
    KnownTail tail;
    std::copy(outs.begin(), outs.end(), tail.out);
    return tail;
  };
  KnownTail tail = made();
  if (outs.size() == 2) {
    const FusedLoop::Operand &a = operand(outs[0]), &b = operand(outs[1]);
    const bool alike = a.strides[0] == b.strides[0] && a.step == b.step && a.size == b.size && a.dim == b.dim;
    return alike && loop_.ndim <= 2 && read_rotation(tail) ? tail : KnownTail();
  }
  if (follows_columns() && (read_sum(tail) || read_silu(tail = made()))) return tail;
  tail = made();
  return loop_.ndim <= 2 && read_heads(tail) ? tail : KnownTail();
}

}  // namespace

KnownTail known_tail(const FusedProducts& products, const FusedTail& tail) { return Reader(products, tail).read(); }

bool takes_tails(const FusedProducts& products) {
  // Of shorter rows several are computed by a block at once.
  constexpr int64_t kShortRow = 512;
  if (products.products[0].a.sizes[2] <= kShortRow) return false;
  unsigned taken = 0;
  for (int i = 0; i < products.ntails; ++i) {
    const KnownTail tail = known_tail(products, products.tails[i]);
    if (tail.kind == KnownTail::Kind::Unknown || taken >> tail.product & 1) return false;
    taken |= 1u << tail.product;
    if (tail.kind != KnownTail::Kind::Heads) return products.ntails == 1;
    // A half is a whole number of the pairs of columns that a few warps have.
    const FusedLoop& loop = *products.tails[i].loop;
    const int64_t heads = loop.ndim == 1 ? 1 : loop.shape[0];
    if (heads * tail.width != products.products[tail.product].out.sizes[2]) return false;
    if (tail.rotates && tail.width % 4) return false;
  }
  return true;
}

}  // namespace mica::cuda
