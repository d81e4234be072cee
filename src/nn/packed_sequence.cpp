#include "mica/nn/packed_sequence.h"

#include "mica/layers.h"
#include "mica/values.h"

namespace mica::nn::utils::rnn {

Tensor invert_permutation(const Tensor& permutation) {
  const Tensor places = arange(0, permutation.numel(), 1, TensorOptions(DType::Int64).device(permutation.device()));
  return empty_like(permutation).scatter_(0, permutation, places);
}

PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& given_lengths, bool batch_first,
                                    bool enforce_sorted) {
  const Tensor lengths = given_lengths.to(DType::Int64);
  PackedSequence packed;
  if (enforce_sorted) {
    std::tie(packed.data, packed.batch_sizes) = _pack_padded_sequence(input, lengths, batch_first);
    return packed;
  }
  const auto [sorted, order] = lengths.sort(-1, true);
  packed.sorted_indices = order.to(input.device());
  packed.unsorted_indices = invert_permutation(packed.sorted_indices);
  std::tie(packed.data, packed.batch_sizes) =
      _pack_padded_sequence(input.index_select(batch_first ? 0 : 1, packed.sorted_indices), sorted, batch_first);
  return packed;
}

std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first, double padding_value,
                                               std::optional<int64_t> total_length) {
  const int64_t longest = sequence.batch_sizes.size(0);
  MICA_CHECK_KIND(
      !total_length || *total_length >= longest, Value,
      "Expected total_length to be at least the length of the longest sequence in input, but got total_length=",
      total_length.value_or(0), " and max sequence length being ", longest);
  auto [padded, lengths] = _pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value,
                                                total_length.value_or(longest));
  const Tensor& order = sequence.unsorted_indices;
  if (!order.defined()) return {padded, lengths};
  return {padded.index_select(batch_first ? 0 : 1, order), lengths.index_select(0, order.to(lengths.device()))};
}

PackedSequence pack_sequence(TensorList sequences, bool enforce_sorted) {
  std::vector<int64_t> lengths;
  for (const Tensor& s : sequences) lengths.push_back(s.size(0));
  return pack_padded_sequence(pad_sequence(sequences), tensor(lengths), false, enforce_sorted);
}

std::vector<Tensor> unpad_sequence(const Tensor& padded, const Tensor& lengths, bool batch_first) {
  const Tensor rows = batch_first ? padded : padded.transpose(0, 1);
  MICA_CHECK_KIND(rows.size(0) == lengths.size(0), Value, "unpad_sequence: got ", rows.size(0), " sequences but ",
                  lengths.size(0), " lengths");
  std::vector<Tensor> sequences;
  for (int64_t i = 0; i < rows.size(0); ++i) sequences.push_back(rows[i].narrow(0, 0, lengths[i].item<int64_t>()));
  return sequences;
}

std::vector<Tensor> unpack_sequence(const PackedSequence& sequence) {
  const auto [padded, lengths] = pad_packed_sequence(sequence, true);
  return unpad_sequence(padded, lengths, true);
}

}  // namespace mica::nn::utils::rnn
