// Sequences of different lengths: packed one time step after another, or padded to the longest.
#pragma once

#include <optional>
#include <vector>

#include "mica/generated/layers/recurrent.h"

namespace mica::nn::utils::rnn {

// The steps of sequences sorted by length, without padding, and how many sequences still run in every step.
struct PackedSequence {
  Tensor data, batch_sizes;
  // Undefined where the sequences came in the order of their lengths.
  Tensor sorted_indices = {}, unsorted_indices = {};

  // What hooks of modules see of it.
  template <class F>
  void visit_tensors(const F& visit) {
    visit(data);
  }
};

Tensor invert_permutation(const Tensor& permutation);

// Without `enforce_sorted`, sequences may come in any order of lengths.
PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, bool batch_first = false,
                                    bool enforce_sorted = true);
// Padded to the longest or to `total_length`, in the order they had; and their lengths.
std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first = false,
                                               double padding_value = 0,
                                               std::optional<int64_t> total_length = std::nullopt);
using mica::pad_sequence;
PackedSequence pack_sequence(TensorList sequences, bool enforce_sorted = true);
std::vector<Tensor> unpad_sequence(const Tensor& padded, const Tensor& lengths, bool batch_first = false);
std::vector<Tensor> unpack_sequence(const PackedSequence& sequence);

}  // namespace mica::nn::utils::rnn
