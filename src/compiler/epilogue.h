// A group of calls that runs on the blocks of a convolution, each as soon as it is computed: the convolution's result
// is in a cache then, and where nobody else asks for it, it never has memory of its own.
#pragma once

#include <memory>
#include <vector>

#include "compiler/plan.h"
#include "core/block_work.h"

namespace mica::recording {

class Epilogue {
 public:
  // Null where the calls `members` cannot run so. `in_memory` tells which slots somebody else may read; the
  // convolution's result is not among them where only the members read it.
  static std::unique_ptr<Epilogue> make(int convolution, const std::vector<int>& members, const Call* calls,
                                        const std::vector<Slot>& slots, const std::vector<char>& in_memory);

  // Lets the convolution compute the product that it reads, if it is one by a number of each channel: `product` is then
  // not run. Operands of it are in memory.
  bool take_factors(int product, const Call* calls, const std::vector<char>& in_memory);

  // Computes the convolution and what follows it. All memory is there.
  void run(const std::vector<Slot>& slots) const;
  int others() const { return product_ < 0 ? 1 : 2; }  // calls beside the members
  // Whether a slot lies in the memory of another, or nowhere.
  bool shares_memory(int slot) const { return home_[slot] != slot; }

  int convolution() const { return convolution_; }          // its index among the calls
  int product() const { return product_; }                  // that the convolution computes, or -1
  bool reads(int slot) const;                               // the convolution does
  const std::vector<int>& order() const { return order_; }  // of the members, as they run
  const std::vector<Unit>& units() const { return units_; }

 private:
  class Work;
  // batch_norm as a product and a sum with two numbers of each channel, which are computed first.
  struct Norm {
    Operand weight, bias, mean, variance;
    double eps;
    int slot;  // of the products; the sums' is the next one
  };
  Epilogue() = default;
  bool take(const Call& call, Call& as);
  bool take_loop(const Call& call, Call& as);
  bool take_norm(const Call& call, Call& as);
  bool take_reduction(const Call& call, Call& as);
  bool flatten(const int64_t* sizes, int ndim, const Operand& o, Operand& as) const;
  bool is_dense(const Operand& o) const;
  bool find_homes(const std::vector<char>& in_memory, const std::vector<char>& in_registers);
  bool follow(int earlier, int later) const;
  int unit_of(int position) const;

  int convolution_ = 0, product_ = -1;
  const Operand *source_ = nullptr, *factors_ = nullptr;  // of the product that it reads
  const Call* call_ = nullptr;                            // the convolution
  const std::vector<Slot>* slots_ = nullptr;              // while it is made
  int64_t images_ = 0, channels_ = 0, positions_ = 0;
  bool reduces_ = false;
  std::vector<Call> calls_;  // the members, with shapes of images, channels and positions
  std::vector<Norm> norms_;
  std::vector<int> order_;
  std::vector<Unit> units_;
  std::vector<Segment> segments_;
  std::vector<int> home_;  // by slot: the slot in whose memory it lies, or -1
};

}  // namespace mica::recording
