#include "compiler/fused_products.h"

#include <algorithm>

#include "mica/backend/kernel_types.h"
#include "mica/error.h"

namespace mica::recording {

namespace {

const NormArguments& norm_arguments(const Call& call) {
  return *reinterpret_cast<const NormArguments*>(call.arguments);
}

bool writes(const Call& call, int slot) {
  for (int k = 0; k < call.noutputs; ++k)
    if (call.operands[k].slot == slot) return true;
  return false;
}

bool uses(const Call& call, int slot) {
  for (int k = 0; k < call.noperands; ++k)
    if (call.operands[k].storage && call.operands[k].slot == slot) return true;
  return false;
}

bool has_one_element(const Call& call, const Operand& o) {
  for (int d = 0; d < call.ndim; ++d)
    if (call.shape[d] != 1 && o.strides[d] != 0) return false;
  return true;
}

// Makes the call's dimensions one. Returns false where an operand lies neither dense nor is one element.
bool flatten(Call& call) {
  int64_t count = 1;
  for (int d = 0; d < call.ndim; ++d) count *= call.shape[d];
  for (int k = 0; k < call.noperands; ++k) {
    Operand& o = call.operands[k];
    if (!o.storage) continue;
    const bool dense = lies_dense(call, o);
    if (!dense && (k < call.noutputs || !has_one_element(call, o))) return false;
    o.strides[0] = dense ? element_size(o.dtype) : 0;
    o.ndim = 1;
  }
  call.ndim = 1;
  call.shape[0] = count;
  return true;
}

}  // namespace

bool ProductChain::computes(int slot) const {
  return std::any_of(products_.begin(), products_.end(), [slot](const Call* call) { return writes(*call, slot); });
}

bool ProductChain::take_product(const Call& call) {
  const Call& first = *products_[0];
  if (!loops_.empty()) return false;
  const Operand &row = call.operands[1], &common = first.operands[1];
  if (call.device != first.device || products_.size() == kFusedProducts) return false;
  if (row.slot != common.slot || row.offset != common.offset || row.dtype != common.dtype ||
      row.sizes[2] != common.sizes[2] || row.strides[2] != common.strides[2])
    return false;
  if (computes(row.slot)) return false;
  if (!tail_.empty() && (products_.size() == 2 || call.operands[0].sizes[2] != columns())) return false;
  products_.push_back(&call);
  return true;
}

bool ProductChain::take_norm(const Call& call) {
  if (norm_ || written_norm_ || call.form != Call::Form::Norm || call.device != products_[0]->device) return false;
  const NormArguments& a = norm_arguments(call);
  const Operand& row = products_[0]->operands[1];
  const Operand& out = call.operands[a.out];
  if (a.backward || a.centred || a.rows != 1 || out.slot != row.slot || out.offset != row.offset ||
      out.dtype != row.dtype || a.count != row.sizes[2])
    return false;
  for (int k = 0; k < call.noperands; ++k)
    if (computes(call.operands[k].slot)) return false;
  norm_ = &call;
  return true;
}

bool ProductChain::stays_inside(const WrittenNorm& norm, const std::vector<char>& in_memory) {
  return std::none_of(norm.between.begin(), norm.between.end(), [&](int slot) { return in_memory[slot]; });
}

bool ProductChain::take_written_norm(const std::vector<const Call*>& calls, const std::vector<char>& stored) {
  if (norm_ || written_norm_) return false;
  const std::optional<WrittenNorm> found = find_written_norm(calls);
  const Operand& row = products_[0]->operands[1];
  const Fusion& fusion = *fusion_of(products_[0]->device);
  if (!found || calls[0]->device != products_[0]->device || !same_place(*found->out, row) || !fusion.takes_row_norm ||
      !fusion.takes_row_norm(row.dtype, row.sizes[2]) || !stays_inside(*found, stored))
    return false;
  for (const Call* call : calls)
    for (int k = 0; k < call->noperands; ++k)
      if (call->operands[k].storage && computes(call->operands[k].slot)) return false;
  written_norm_ = found;
  return true;
}

const Call* ProductChain::take_tail(const Call& call) {
  if (!loops_.empty() || call.form != Call::Form::Loop || call.noutputs != 1 || call.device != products_[0]->device ||
      columns() == 1 || !fusion_of(call.device)->takes_tails)
    return nullptr;
  if (products_.size() > 2 || (products_.size() == 2 && products_[1]->operands[0].sizes[2] != columns()))
    return nullptr;
  int64_t count = 1;
  for (int d = 0; d < call.ndim; ++d) count *= call.shape[d];
  if (count != columns()) return nullptr;
  MadeCall& flat = tail_.emplace_back(call);
  if (flatten(flat)) return &flat;
  tail_.pop_back();
  return nullptr;
}

void ProductChain::give_back_tail() { tail_.pop_back(); }

// Parts of calls that have nothing to do with each other: none writes what another one uses.
static std::vector<std::vector<const Call*>> apart(const std::vector<const Call*>& calls) {
  const auto meet = [](const Call& a, const Call& b) {
    for (int k = 0; k < b.noperands; ++k)
      if (b.operands[k].storage && (writes(a, b.operands[k].slot) || (k < b.noutputs && uses(a, b.operands[k].slot))))
        return true;
    return false;
  };
  std::vector<std::vector<const Call*>> parts;
  for (const Call* call : calls) {
    std::vector<const Call*> part;
    std::erase_if(parts, [&](const std::vector<const Call*>& earlier) {
      const bool joined =
          std::any_of(earlier.begin(), earlier.end(), [&](const Call* other) { return meet(*other, *call); });
      if (joined) part.insert(part.end(), earlier.begin(), earlier.end());
      return joined;
    });
    part.push_back(call);
    parts.push_back(std::move(part));
  }
  return parts;
}

bool ProductChain::take_loops(const std::vector<const Call*>& calls, const std::vector<char>& stored) {
  if (!tail_.empty() || calls[0]->device != products_[0]->device || !fusion_of(calls[0]->device)->takes_tails)
    return false;
  const size_t before = loops_.size();
  for (std::vector<const Call*>& part : apart(calls)) loops_.push_back(std::move(part));
  if (loops_.size() <= kFusedProducts && fits(stored)) return true;
  loops_.resize(before);
  return false;
}

struct ProductChain::Written {
  int64_t strides[kFusedProducts][3][3];
  MatmulCall products[kFusedProducts];
  FusedRowNorm norm{};
  WrittenLoop loops[kFusedProducts]{};
  FusedTail tails[kFusedProducts]{};
  FusedProducts chain{};
};

bool ProductChain::write_tail(Written& to, const std::vector<const Call*>& calls,
                              const std::vector<char>& in_memory) const {
  // While groups are made, nobody may have asked for the last result yet. Somebody will: it would be dead otherwise.
  std::vector<char> stored = in_memory;
  stored[calls.back()->operands[0].slot] = 1;
  WrittenLoop& written = to.loops[to.chain.ntails];
  FusedTail& tail = to.tails[to.chain.ntails++];
  if (!write_loop(written, calls, stored)) return false;
  tail.loop = &written.loop;
  for (int i = 0; i < written.loop.noperands; ++i) {
    tail.of_product[i] = -1;
    for (size_t j = 0; j < products_.size(); ++j) {
      const Operand& out = products_[j]->operands[0];
      const int64_t bytes = element_size(out.dtype), begin = written.places[i].offset - out.offset;
      if (out.slot != written.places[i].slot || begin < 0 || begin >= out.sizes[2] * bytes) continue;
      tail.of_product[i] = static_cast<int8_t>(j);
      tail.column[i] = begin / bytes;
    }
  }
  return true;
}

bool ProductChain::write(Written& to, const std::vector<char>& in_memory) const {
  for (size_t i = 0; i < products_.size(); ++i) {
    const Call& call = *products_[i];
    const auto view = [&](int k) {
      const Operand& o = call.operands[k];
      for (int d = 0; d < 3; ++d) to.strides[i][k][d] = o.strides[d] / element_size(o.dtype);
      const int64_t numel = o.sizes[0] * o.sizes[1] * o.sizes[2];
      return TensorView{nullptr, o.sizes, to.strides[i][k], numel, 3, o.dtype, call.device};
    };
    to.products[i].out = view(0);
    to.products[i].a = view(1);
    to.products[i].b = view(2);
  }
  to.chain.products = to.products;
  to.chain.count = static_cast<int>(products_.size());
  if (norm_) {
    to.norm.count = norm_arguments(*norm_).count;
    to.norm.eps = norm_arguments(*norm_).eps;
    to.chain.norm = &to.norm;
  }
  if (written_norm_) {
    to.norm.count = products_[0]->operands[1].sizes[2];
    to.norm.eps = written_norm_->eps();
    to.norm.as_written = true;
    to.chain.norm = &to.norm;
  }
  if (tail_.empty() && loops_.empty()) return true;
  to.chain.tails = to.tails;
  std::vector<const Call*> flat;
  for (const MadeCall& call : tail_) flat.push_back(&call);
  if (!flat.empty() && !write_tail(to, flat, in_memory)) return false;
  for (const std::vector<const Call*>& loop : loops_)
    if (!write_tail(to, loop, in_memory)) return false;
  return fusion_of(products_[0]->device)->takes_tails(to.chain);
}

bool ProductChain::fits(const std::vector<char>& in_memory) const {
  if (written_norm_ && !stays_inside(*written_norm_, in_memory)) return false;
  return (tail_.empty() && loops_.empty()) || write(*std::make_unique<Written>(), in_memory);
}

std::vector<int> ProductChain::constants() const {
  std::vector<int> found;
  for (const Call* product : products_) found.push_back(product->operands[2].slot);
  if (written_norm_ && written_norm_->weight) found.push_back(written_norm_->weight->slot);
  if (norm_ && norm_arguments(*norm_).weight >= 0) found.push_back(norm_->operands[norm_arguments(*norm_).weight].slot);
  return found;
}

void ProductChain::run(const std::vector<Slot>& slots, const std::vector<char>& in_memory, bool early) const {
  const auto address = [&](const Operand& o) -> char* {
    return in_memory[o.slot] ? static_cast<char*>(slots[o.slot].storage->address()) + o.offset : nullptr;
  };
  const auto written = std::make_unique<Written>();
  const bool fits = write(*written, in_memory);
  MICA_CHECK(fits, "loops behind ", products_.size(), " products cannot be computed with them");
  for (size_t i = 0; i < products_.size(); ++i) {
    const Call& call = *products_[i];
    MatmulCall& to = written->products[i];
    to.out.data = address(call.operands[0]);
    to.a.data = address(call.operands[1]);
    to.b.data = address(call.operands[2]);
    if (call.noperands > 3) to.bias = address(call.operands[3]);
  }
  if (norm_) {
    const NormArguments& a = norm_arguments(*norm_);
    const auto at = [&](int8_t k) { return k < 0 ? nullptr : address(norm_->operands[k]); };
    written->norm.input = at(a.input);
    written->norm.weight = at(a.weight);
    written->norm.out = at(a.out);
    written->norm.rstd = reinterpret_cast<float*>(at(a.rstd));
  }
  if (written_norm_) {
    written->norm.input = address(written_norm_->input());
    written->norm.weight = written_norm_->weight ? address(*written_norm_->weight) : nullptr;
    written->norm.out = address(*written_norm_->out);
    const auto number = [&](const Call* call) { return reinterpret_cast<float*>(address(call->operands[0])); };
    written->norm.mean = number(written_norm_->mean);
    written->norm.shifted = number(written_norm_->shifted);
    written->norm.rstd = number(written_norm_->root);
  }
  for (int i = 0; i < written->chain.ntails; ++i) written->loops[i].fill_in(slots);
  written->chain.early = early;
  fusion_of(products_[0]->device)->run_products(written->chain);
}

}  // namespace mica::recording
