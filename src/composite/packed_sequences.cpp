#include <algorithm>

#include "core/host_data.h"
#include "mica/generated/layers/recurrent.h"
#include "mica/generated/layers/recurrent_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

Tensor read_lengths(const Tensor& lengths) {
  MICA_CHECK(lengths.is_cpu() && lengths.dtype() == DType::Int64 && lengths.dim() == 1,
             "'lengths' argument should be a 1D CPU int64 tensor, but got ", lengths.dim(), "D ", lengths);
  return lengths.contiguous();
}

// Row (t, i) of padded sequences, for every row of packed ones.
Tensor padded_rows(IntArrayRef batch_sizes, int64_t batch, Device device) {
  int64_t total = 0;
  for (int64_t n : batch_sizes) total += n;
  Tensor rows = mica::empty({total}, TensorOptions(DType::Int64).device(kCPU));
  int64_t* to = host_data<int64_t>(rows);
  for (size_t t = 0; t < batch_sizes.size(); ++t)
    for (int64_t i = 0; i < batch_sizes[t]; ++i) *to++ = static_cast<int64_t>(t) * batch + i;
  return device.is_cpu() ? rows : rows.to(device);
}

DimVector joined(std::initializer_list<int64_t> front, IntArrayRef rest) {
  DimVector sizes(front);
  for (int64_t n : rest) sizes.push_back(n);
  return sizes;
}

}  // namespace

std::tuple<Tensor, Tensor> _pack_padded_sequence(const Tensor& input, const Tensor& lengths, bool batch_first) {
  MICA_CHECK_KIND(input.dim() >= 2, Index, "Dimension out of range (expected a time and a batch dimension, but got ",
                  input, ")");
  const Tensor x = batch_first ? input.transpose(0, 1) : input;
  const Tensor dense = read_lengths(lengths);
  MICA_CHECK(input.numel() > 0, "Cannot pack empty tensors.");
  const int64_t steps = x.size(0), batch = x.size(1);
  MICA_CHECK(dense.numel() == batch, "Expected `len(lengths)` to be equal to batch_size, but got ", dense.numel(),
             " (batch_size=", batch, ")");
  const int64_t* length = host_data<int64_t>(dense);
  for (int64_t i = 0; i < batch; ++i) {
    MICA_CHECK(length[i] > 0,
               "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0");
    MICA_CHECK(i == 0 || length[i] <= length[i - 1],
               "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
               "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement.");
  }
  MICA_CHECK(length[0] <= steps, "Expected lengths of at most the ", steps, " steps of the input, but found ",
             length[0]);
  Tensor batch_sizes = mica::empty({length[0]}, TensorOptions(DType::Int64).device(kCPU));
  int64_t* sizes = host_data<int64_t>(batch_sizes);
  for (int64_t t = 0, n = batch; t < length[0]; ++t) {
    while (length[n - 1] <= t) --n;
    sizes[t] = n;
  }
  const DimVector flat = joined({steps * batch}, x.sizes().slice(2, x.dim() - 2));
  const Tensor rows = padded_rows(IntArrayRef(sizes, static_cast<size_t>(length[0])), batch, input.device());
  const Tensor data = x.reshape(flat);
  return {rows.numel() == steps * batch ? data.contiguous() : mica::index_select(data, 0, rows), batch_sizes};
}

std::tuple<Tensor, Tensor> _pad_packed_sequence(const Tensor& data, const Tensor& batch_sizes, bool batch_first,
                                                const Scalar& padding_value, int64_t total_length) {
  const Tensor dense = read_lengths(batch_sizes);
  const int64_t longest = dense.numel();
  MICA_CHECK(longest > 0, "packed sequences have at least one step, but batch_sizes is empty");
  const IntArrayRef sizes(host_data<int64_t>(dense), static_cast<size_t>(longest));
  const int64_t batch = sizes[0];
  const int64_t steps = total_length > 0 ? total_length : longest;
  MICA_CHECK(steps >= longest,
             "Expected total_length to be at least the length of the longest sequence in input, but got total_length=",
             steps, " and max sequence length being ", longest);
  MICA_CHECK(data.dim() >= 1, "packed data must have at least one dimension");
  Tensor lengths = mica::empty({batch}, TensorOptions(DType::Int64).device(kCPU));
  int64_t* length = host_data<int64_t>(lengths);
  int64_t total = 0;
  for (int64_t t = 0; t < longest; ++t) {
    MICA_CHECK(sizes[t] > 0 && sizes[t] <= (t ? sizes[t - 1] : batch),
               "batch_sizes of packed sequences must be positive and must not grow, but step ", t, " has ", sizes[t]);
    for (int64_t i = 0; i < sizes[t]; ++i) length[i] = t + 1;
    total += sizes[t];
  }
  MICA_CHECK(total == data.size(0), "packed sequences of ", total, " steps need as many rows, but got ", data);
  const IntArrayRef features = data.sizes().slice(1, data.dim() - 1);
  Tensor padded;
  if (total == steps * batch) {
    padded = data;
  } else {
    padded = mica::index_copy(mica::full(joined({steps * batch}, features), padding_value, data.options()), 0,
                              padded_rows(sizes, batch, data.device()), data);
  }
  padded = padded.view(joined({steps, batch}, features));
  return {batch_first ? padded.transpose(0, 1) : padded, lengths};
}

Tensor pad_sequence(TensorList sequences, bool batch_first, double padding_value, std::string_view padding_side) {
  MICA_CHECK(!sequences.empty(), "received an empty list of sequences");
  MICA_CHECK(padding_side == "left" || padding_side == "right",
             "Expected padding_side to be one of left or right, but got ", padding_side, ".");
  int64_t longest = 0;
  for (const Tensor& s : sequences) {
    MICA_CHECK(s.dim() > 0, "pad_sequence: sequences must have at least one dimension");
    longest = std::max(longest, s.size(0));
  }
  const int64_t batch = static_cast<int64_t>(sequences.size());
  const IntArrayRef features = sequences[0].sizes().slice(1, sequences[0].dim() - 1);
  const DimVector sizes = batch_first ? joined({batch, longest}, features) : joined({longest, batch}, features);
  const Tensor out = mica::full(sizes, padding_value, sequences[0].options());
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t length = sequences[i].size(0), start = padding_side == "left" ? longest - length : 0;
    out.select(batch_first ? 0 : 1, i).narrow(0, start, length).copy_(sequences[i]);
  }
  return out;
}

}  // namespace mica::composite
