// An epilogue is a group of calls that runs on the blocks of a convolution's result, each as soon as it is computed.
// The block is in a cache then. Where nobody else asks for the convolution's result, it has no memory of its own.
#pragma once

#include <memory>
#include <vector>

#include "compiler/plan.h"
#include "core/block_work.h"

namespace mica::recording {

class Epilogue {
 public:
  // Makes the epilogue of the calls `members`. Returns null where they cannot run on blocks. `in_memory` tells which
  // slots somebody else may read; it is false for the convolution's result where only the members read it.
  // `interleaved` says how images lie that the convolution and the members write, and other images that they read, and
  // `source_interleaved` how the convolution's input lies.
  static std::unique_ptr<Epilogue> make(int convolution, const std::vector<int>& members, const Call* calls,
                                        const std::vector<Slot>& slots, const std::vector<char>& in_memory,
                                        bool interleaved, bool source_interleaved);

  // Lets the convolution multiply its input by one number for each channel as it reads it, so that the call `product`,
  // which computes that input, need not run. Returns false where the call is no such product or its operands are not in
  // memory.
  bool take_factors(int product, const Call* calls, const std::vector<Slot>& slots, const std::vector<char>& in_memory);

  // Takes the numbers of calls that differ from those it was made of in nothing else. The convolution and the product
  // are not copied: whoever keeps the epilogue keeps them, with their numbers.
  void take_numbers(const std::vector<int>& members, const Call* calls);

  // Computes the convolution and the calls that follow it. All slots that are in memory have their memory.
  void run(const std::vector<Slot>& slots) const;
  // How many calls it runs beside the members: the convolution, and the product if it takes one.
  int others() const { return product_ < 0 ? 1 : 2; }
  // Whether a slot lies in the memory of another one, or has no memory.
  bool shares_memory(int slot) const { return home_[slot] != slot; }

  int convolution() const { return convolution_; }  // the index of its call
  int product() const { return product_; }          // the index of the product's call, or -1
  bool reads(int slot) const;                       // whether the convolution reads the slot
  // How the results lie interleaved; none where they do not. Whether the members read and write whole images of a slot.
  const Interleaving& interleaving() const { return interleaving_; }
  bool source_interleaved() const { return source_interleaved_; }
  bool takes_images(int slot) const { return whole_[slot]; }
  const std::vector<int>& order() const { return order_; }  // the members in the order in which they run
  const std::vector<Unit>& units() const { return units_; }
  size_t bytes() const { return calls_.size() * sizeof(Call); }  // what most of its memory is

 private:
  // All shapes are taken as images of channels of positions, or of positions of channels where they lie interleaved.
  static constexpr int kImage = 0, kChannel = 1, kPosition = 2, kBlockDims = 3;
  int channel_dim() const { return interleaving_ ? 2 : 1; }
  int position_dim() const { return interleaving_ ? 1 : 2; }
  static constexpr int64_t kFloat = sizeof(float);

  class Work;
  // A norm of evaluation runs as x * scale + shift, with two numbers for each channel that are computed first.
  struct Norm {
    Operand weight, bias, mean, variance;
    double eps;
    int slot;  // the slot of the scales; the next one is that of the shifts
  };
  Epilogue() = default;
  // These translate a member into the shape of images, channels and positions. They return false where the call cannot
  // run on blocks.
  bool take(const Call& call, Call& as);
  bool take_loop(const Call& call, Call& as);
  bool take_norm(const Call& call, Call& as);
  bool take_reduction(const Call& call, Call& as);
  bool flatten(const int64_t* sizes, int ndim, const Operand& o, Operand& as);
  void set_shape(int64_t* sizes) const;
  bool fills_its_storage(const Operand& o, int64_t image, int64_t channel, int64_t position) const;
  bool fills_its_storage(const Operand& o) const;
  bool writes_only_fresh_memory() const;
  bool keeps_what_is_reduced(const std::vector<char>& in_memory);
  void join_silus(const std::vector<char>& asked_for, std::vector<char>& in_registers);
  bool find_homes(const std::vector<char>& in_memory, const std::vector<char>& in_registers);
  bool follow(int earlier, int later) const;
  int unit_of(int position) const;

  int convolution_ = 0, product_ = -1;
  const Operand *source_ = nullptr, *factors_ = nullptr;  // the operands of the product, if it takes one
  const Call* call_ = nullptr;                            // the convolution
  const std::vector<Slot>* slots_ = nullptr;              // null once the epilogue is made
  int64_t images_ = 0, channels_ = 0, positions_ = 0;
  bool reduces_ = false;  // whether a member is a sum or a mean of each channel
  Interleaving interleaving_;
  bool source_interleaved_ = false;
  std::vector<char> whole_, partial_;  // by slot: whether members use whole images of it, and whether they use parts
  std::vector<Call> calls_;            // the members as take() has translated them
  std::vector<Norm> norms_;
  std::vector<int> order_;
  std::vector<Unit> units_;
  std::vector<Segment> segments_;
  std::vector<int> home_;  // by slot: the slot in whose memory it lies, or -1
};

}  // namespace mica::recording
