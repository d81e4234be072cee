// Recurrent layers and Transformers, as torch has them.
#include "mica/nn.h"
#include "mica/values.h"
#include "recorded_modules.h"

namespace mica::testing {
namespace {

constexpr auto kAllResults = [](const auto& m, const Tensors& in) { return flat(m(in[0])); };
constexpr auto kPacked = [](const auto& m, const Tensors& in) {
  const Tensor lengths = tensor({2, 4});
  const auto [out, state] = m(nn::utils::rnn::pack_padded_sequence(in[0], lengths, false, false));
  return flat(nn::utils::rnn::pad_packed_sequence(out), state);
};

TEST(RecordedSequences, Layers) {
#define EXPECT_RECURRENT(Name)                                                                                        \
  expect_as_recorded(#Name, [] { return runs(nn::Name(3, 2), kAllResults); });                                        \
  expect_as_recorded(#Name " in layers", [] {                                                                         \
    return runs(                                                                                                      \
        nn::Name(3, 2, {.num_layers = 2, .bias = false, .batch_first = true, .dropout = 0.3, .bidirectional = true}), \
        kAllResults);                                                                                                 \
  });                                                                                                                 \
  expect_as_recorded(#Name " of one", [] { return runs(nn::Name(3, 2), kAllResults); });                              \
  expect_as_recorded(#Name " packed", [] { return runs(nn::Name(3, 2), kPacked); });                                  \
  expect_as_recorded(#Name "Cell", [] { return runs(nn::Name##Cell(3, 2), kAllResults); });                           \
  expect_as_recorded(#Name "Cell of one", [] { return runs(nn::Name##Cell(3, 2, {.bias = false}), kAllResults); })
  EXPECT_RECURRENT(RNN);
  EXPECT_RECURRENT(GRU);
  EXPECT_RECURRENT(LSTM);
#undef EXPECT_RECURRENT
  expect_as_recorded("RNN relu", [] { return runs(nn::RNN(3, 2, {.nonlinearity = "relu"}), kAllResults); });
  expect_as_recorded("RNNCell relu", [] { return runs(nn::RNNCell(3, 2, {.nonlinearity = "relu"})); });
  expect_as_recorded("LSTM projected", [] { return runs(nn::LSTM(3, 4, {.proj_size = 2}), kAllResults); });
  expect_as_recorded("LSTM from a state", [] {
    return runs(nn::LSTM(3, 2),
                [](const auto& m, const Tensors& in) { return flat(m(in[0], nn::LSTMImpl::State(in[1], in[2]))); });
  });
}

TEST(RecordedSequences, Attention) {
  expect_as_recorded("MultiheadAttention", [] {
    return runs(nn::MultiheadAttention(4, 2),
                [](const auto& m, const Tensors& in) { return flat(m(in[0], in[0], in[0])); });
  });
  expect_as_recorded("MultiheadAttention batch first", [] {
    return runs(nn::MultiheadAttention(4, 2, {.dropout = 0.5, .batch_first = true}),
                [](const auto& m, const Tensors& in) {
                  return flat(m(in[0], in[1], in[1], nn::AttentionCall{.average_attn_weights = false}));
                });
  });
  expect_as_recorded("MultiheadAttention of sizes", [] {
    return runs(
        nn::MultiheadAttention(4, 2, {.bias = false, .add_bias_kv = true, .add_zero_attn = true, .kdim = 3, .vdim = 2}),
        [](const auto& m, const Tensors& in) { return flat(m(in[0], in[1], in[2])); });
  });
}

TEST(RecordedSequences, Transformers) {
  const auto encoder_layer = [](double dropout) {
    return nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 6, .dropout = dropout});
  };
  expect_as_recorded("TransformerEncoderLayer", [&] { return runs(encoder_layer(0.1)); });
  expect_as_recorded("TransformerEncoderLayer norm first", [] {
    return runs(nn::TransformerEncoderLayer(4, 2,
                                            {.dim_feedforward = 6,
                                             .dropout = 0,
                                             .activation = "gelu",
                                             .batch_first = true,
                                             .norm_first = true,
                                             .bias = false}));
  });
  expect_as_recorded("TransformerDecoderLayer", [] {
    return runs<2>(nn::TransformerDecoderLayer(4, 2, {.dim_feedforward = 6, .batch_first = true}));
  });
  const auto encoder = [&] { return nn::TransformerEncoder(encoder_layer(0), 2, nn::LayerNorm(4)); };
  const auto causal = [](int64_t size) { return nn::TransformerImpl::generate_square_subsequent_mask(size); };
  expect_as_recorded("TransformerEncoder", [&] {
    return runs(encoder(), [causal](const auto& m, const Tensors& in) {
      return flat(m(in[0], nn::EncoderCall{.src_mask = causal(2)}));
    });
  });
  expect_as_recorded("TransformerEncoder padded", [&] {
    return runs(encoder(), [](const auto& m, const Tensors& in) {
      const Tensor padding = tensor({false, false, false, true, false, false}).view({3, 2});
      return flat(m(in[0], nn::EncoderCall{.src_key_padding_mask = padding}));
    });
  });
  expect_as_recorded("TransformerDecoder", [&] {
    const nn::TransformerDecoderLayer layer(4, 2, {.dim_feedforward = 6, .dropout = 0});
    return runs(nn::TransformerDecoder(layer, 2), [causal](const auto& m, const Tensors& in) {
      return flat(m(in[0], in[1], nn::DecoderCall{.tgt_mask = causal(3)}));
    });
  });
  expect_as_recorded("Transformer", [] {
    return runs<2>(nn::Transformer({.d_model = 4,
                                    .nhead = 2,
                                    .num_encoder_layers = 2,
                                    .num_decoder_layers = 1,
                                    .layer = {.dim_feedforward = 6, .batch_first = true}}));
  });
}

TEST(Sequences, PackAndUnpack) {
  using namespace nn::utils::rnn;
  const std::vector<Tensor> sequences{tensor({1, 2}), tensor({3, 4, 5}), tensor({6})};
  const PackedSequence packed = pack_sequence(sequences, false);
  EXPECT_TRUE(equal(packed.data, tensor({3, 1, 6, 4, 2, 5})));
  EXPECT_TRUE(equal(packed.batch_sizes, tensor({3, 2, 1})));
  const std::vector<Tensor> back = unpack_sequence(packed);
  ASSERT_EQ(back.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(equal(back[i], sequences[i]));
  EXPECT_THROW(pack_sequence(sequences), Error);
  EXPECT_THROW(pad_packed_sequence(packed, true, 0, 2), Error);
}

TEST(Sequences, WrongInputs) {
  const nn::LSTM lstm(3, 2);
  EXPECT_THROW(lstm(zeros({4, 2, 5})), Error);
  EXPECT_THROW(lstm(zeros({4})), Error);
  EXPECT_THROW(lstm(zeros({4, 2, 3}), nn::LSTMImpl::State(zeros({1, 3, 2}), zeros({1, 3, 2}))), Error);
  EXPECT_THROW(lstm(zeros({4, 2, 3}, DType::Float64)), Error);
  EXPECT_THROW(nn::LSTM(3, 2, {.proj_size = 2}), Error);
  EXPECT_THROW(nn::GRU(3, 2, {.proj_size = 1}), Error);
  EXPECT_THROW(nn::RNN(3, 2, {.nonlinearity = "sine"}), Error);
  EXPECT_THROW(nn::MultiheadAttention(5, 2), Error);
}

}  // namespace
}  // namespace mica::testing
