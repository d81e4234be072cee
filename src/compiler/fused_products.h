// Products of one row on a device whose backend fuses calls, with the neighbours that their kernel computes too: the
// norm of the row before them, and behind them a loop over their columns (a residual sum, an activation) or loops over
// their heads (a rotation of positions, a write to a cache).
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "compiler/written_norm.h"

namespace mica::recording {

class ProductChain {
 public:
  explicit ProductChain(const Call& product) : products_{&product} {}

  // Take in a call that runs beside, before or behind the products. The caller has seen that no other call has to run
  // between the two. They return false where the kernel does not compute such a call.
  bool take_product(const Call& call);
  bool take_norm(const Call& call);
  bool take_written_norm(const std::vector<const Call*>& calls, const std::vector<char>& stored);
  // The call as a loop over the columns, or null where it is none. The chain has it until it is given back.
  const Call* take_tail(const Call& call);
  void give_back_tail();
  // Whole loops behind a product each, instead: the calls of one loop, which may be several that have nothing to do
  // with each other.
  bool take_loops(const std::vector<const Call*>& calls, const std::vector<char>& stored);

  // Whether the kernel computes the written norm and the loop behind the products where these slots are in memory.
  bool fits(const std::vector<char>& in_memory) const;
  // The slots that the kernel may read before the kernel before it has ended.
  std::vector<int> constants() const;
  bool computes(int slot) const;  // as the result of a product
  // `early` as in FusedProducts.
  void run(const std::vector<Slot>& slots, const std::vector<char>& in_memory, bool early) const;

 private:
  int64_t columns() const { return products_[0]->operands[0].sizes[2]; }
  // Whether nobody asks for the rows that a written norm computes on the way.
  static bool stays_inside(const WrittenNorm& norm, const std::vector<char>& in_memory);
  // The products as the backend sees them, without addresses. Returns false where it does not compute the tail.
  struct Written;
  bool write(Written& to, const std::vector<char>& in_memory) const;
  bool write_tail(Written& to, const std::vector<const Call*>& calls, const std::vector<char>& in_memory) const;

  std::vector<const Call*> products_;
  const Call* norm_ = nullptr;
  std::optional<WrittenNorm> written_norm_;
  std::deque<MadeCall> tail_;  // flat: their one dimension is the columns
  std::vector<std::vector<const Call*>> loops_;
};

}  // namespace mica::recording
