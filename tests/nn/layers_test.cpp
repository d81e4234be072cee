// Layers of images and rows, as torch has them.
#include "mica/nn.h"
#include "recorded_modules.h"

namespace mica::testing {
namespace {

using nn::Dims;

TEST(RecordedLayers, Linear) {
  expect_as_recorded("Identity", [] { return runs(nn::Identity()); });
  expect_as_recorded("Linear", [] { return runs(nn::Linear(4, 2)); });
  expect_as_recorded("Linear without bias", [] { return runs(nn::Linear(4, 2, {.bias = false})); });
  expect_as_recorded("Bilinear", [] { return runs<2>(nn::Bilinear(4, 3, 2)); });
  expect_as_recorded("Flatten", [] { return runs(nn::Flatten()); });
  expect_as_recorded("Unflatten", [] { return runs(nn::Unflatten(1, {2, 2})); });
  expect_as_recorded("Sequential", [] { return runs(nn::Sequential{nn::Linear(4, 3), nn::Tanh(), nn::Linear(3, 2)}); });
}

TEST(RecordedLayers, Embeddings) {
  expect_as_recorded("Embedding", [] { return runs(nn::Embedding(5, 3)); });
  expect_as_recorded("Embedding padded",
                     [] { return runs(nn::Embedding(5, 3, {.padding_idx = -4, .max_norm = 1.5, .norm_type = 1})); });
  expect_as_recorded("Embedding scaled", [] { return runs(nn::Embedding(5, 3, {.scale_grad_by_freq = true})); });
  expect_as_recorded("EmbeddingBag", [] { return runs(nn::EmbeddingBag(5, 3)); });
  expect_as_recorded("EmbeddingBag of offsets",
                     [] { return runs<2>(nn::EmbeddingBag(5, 3, {.mode = "sum", .padding_idx = 1})); });
}

TEST(RecordedLayers, Activations) {
#define EXPECT_PLAIN(Name) expect_as_recorded(#Name, [] { return runs(nn::Name()); })
  EXPECT_PLAIN(Sigmoid);
  EXPECT_PLAIN(LogSigmoid);
  EXPECT_PLAIN(Tanh);
  EXPECT_PLAIN(Tanhshrink);
  EXPECT_PLAIN(Softsign);
  EXPECT_PLAIN(ReLU);
  EXPECT_PLAIN(ReLU6);
  EXPECT_PLAIN(SELU);
  EXPECT_PLAIN(SiLU);
  EXPECT_PLAIN(Mish);
  EXPECT_PLAIN(Hardsigmoid);
  EXPECT_PLAIN(Hardswish);
  EXPECT_PLAIN(ELU);
  EXPECT_PLAIN(CELU);
  EXPECT_PLAIN(LeakyReLU);
  EXPECT_PLAIN(Hardshrink);
  EXPECT_PLAIN(Softshrink);
  EXPECT_PLAIN(GELU);
  EXPECT_PLAIN(GLU);
  EXPECT_PLAIN(Hardtanh);
  EXPECT_PLAIN(Softplus);
  EXPECT_PLAIN(RReLU);
  EXPECT_PLAIN(Softmax2d);
  EXPECT_PLAIN(Dropout1d);
  EXPECT_PLAIN(Dropout2d);
  EXPECT_PLAIN(Dropout3d);
  EXPECT_PLAIN(AlphaDropout);
  EXPECT_PLAIN(FeatureAlphaDropout);
#undef EXPECT_PLAIN
  const auto of_a_copy = [](const auto& m, const Tensors& in) { return Tensors{m(in[0] * 1)}; };
  expect_as_recorded("ELU in place", [&] { return runs(nn::ELU(0.5, true), of_a_copy); });
  expect_as_recorded("ReLU in place", [&] { return runs(nn::ReLU(true), of_a_copy); });
  expect_as_recorded("GELU by tanh", [] { return runs(nn::GELU("tanh")); });
  expect_as_recorded("Threshold", [] { return runs(nn::Threshold(0.1, 20.0)); });
  expect_as_recorded("PReLU", [] { return runs(nn::PReLU(6)); });
  expect_as_recorded("Softmax", [] { return runs(nn::Softmax(1)); });
  expect_as_recorded("LogSoftmax", [] { return runs(nn::LogSoftmax(1)); });
  expect_as_recorded("Softmin", [] { return runs(nn::Softmin(1)); });
  expect_as_recorded("Dropout", [] { return runs(nn::Dropout(0.4)); });
}

TEST(RecordedLayers, Convolutions) {
  expect_as_recorded("Conv1d", [] { return runs(nn::Conv1d(2, 4, 3, {.stride = 2, .padding = 1})); });
  expect_as_recorded("Conv2d", [] { return runs(nn::Conv2d(2, 4, 3, {.stride = 2, .padding = 1})); });
  expect_as_recorded("Conv3d", [] { return runs(nn::Conv3d(2, 4, 3, {.stride = 2, .padding = 1})); });
  expect_as_recorded("ConvTranspose1d", [] { return runs(nn::ConvTranspose1d(2, 3, 2, {.stride = 2})); });
  expect_as_recorded("ConvTranspose2d", [] { return runs(nn::ConvTranspose2d(2, 3, 2, {.stride = 2})); });
  expect_as_recorded("ConvTranspose3d", [] { return runs(nn::ConvTranspose3d(2, 3, 2, {.stride = 2})); });
  expect_as_recorded("Conv2d in groups", [] {
    return runs(nn::Conv2d(2, 4, {3, 1}, {.dilation = {2, 1}, .groups = 2, .bias = false}));
  });
  expect_as_recorded("Conv2d same", [] { return runs(nn::Conv2d(2, 3, 3, {.padding_word = "same"})); });
  expect_as_recorded("Conv2d circular", [] {
    return runs(nn::Conv2d(2, 3, 3, {.padding = {1, 2}, .padding_mode = "circular"}));
  });
  expect_as_recorded("Conv2d reflecting same",
                     [] { return runs(nn::Conv2d(2, 3, 2, {.padding_word = "same", .padding_mode = "reflect"})); });
  expect_as_recorded("ConvTranspose2d of a size", [] {
    return runs(nn::ConvTranspose2d(2, 3, 3, {.stride = 2, .padding = 1}), [](const auto& m, const Tensors& in) {
      return Tensors{m(in[0], Dims{12, 9})};
    });
  });
  expect_as_recorded("ConvTranspose2d padded", [] {
    return runs(nn::ConvTranspose2d(2, 4, 3, {.stride = 2, .output_padding = 1, .groups = 2}));
  });
}

TEST(RecordedLayers, Pooling) {
  const auto with_indices = [](const auto& m, const Tensors& in) { return flat(m->forward_with_indices(in[0])); };
#define EXPECT_POOLS(n)                                                                                           \
  expect_as_recorded("MaxPool" #n "d",                                                                            \
                     [&] { return runs(nn::MaxPool##n##d(2, {.stride = 1, .padding = 1}), with_indices); });      \
  expect_as_recorded("AvgPool" #n "d", [] { return runs(nn::AvgPool##n##d(2, {.ceil_mode = true})); });           \
  expect_as_recorded("LPPool" #n "d", [] { return runs(nn::LPPool##n##d(2, 2)); });                               \
  expect_as_recorded("AdaptiveAvgPool" #n "d", [] { return runs(nn::AdaptiveAvgPool##n##d(3)); });                \
  expect_as_recorded("AdaptiveMaxPool" #n "d", [&] { return runs(nn::AdaptiveMaxPool##n##d(2), with_indices); }); \
  expect_as_recorded("MaxUnpool" #n "d", [&] { return runs(nn::MaxUnpool##n##d(2), to_size[n - 1]); })
  const auto unpool = [](Dims size) {
    return [size](const auto& m, const Tensors& in) { return Tensors{m(in[0], in[1], size)}; };
  };
  const decltype(unpool(7)) to_size[] = {unpool({7}), unpool({6, 5}), unpool({4, 5, 4})};
  EXPECT_POOLS(1);
  EXPECT_POOLS(2);
  EXPECT_POOLS(3);
#undef EXPECT_POOLS
  expect_as_recorded("MaxPool2d of tuples", [] {
    return runs(nn::MaxPool2d({3, 2}, {.dilation = {1, 2}, .ceil_mode = true}));
  });
  expect_as_recorded("AvgPool2d divided", [] {
    return runs(nn::AvgPool2d({2, 3}, {.stride = Dims{1, 2}, .divisor_override = 4}));
  });
  expect_as_recorded("LPPool2d of tuples", [] { return runs(nn::LPPool2d(1.5, {2, 1}, {.stride = Dims{1, 1}})); });
  expect_as_recorded("AdaptiveAvgPool2d of tuples", [] { return runs(nn::AdaptiveAvgPool2d({2, 3})); });
  expect_as_recorded("FractionalMaxPool2d", [] { return runs(nn::FractionalMaxPool2d(2, {.output_size = 3})); });
  expect_as_recorded("FractionalMaxPool3d", [] { return runs(nn::FractionalMaxPool3d(2, {.output_ratio = {0.5}})); });
}

TEST(RecordedLayers, Normalizations) {
  // In training, then in evaluation, then the running statistics.
  const auto twice = [](const auto& m, const Tensors& in) {
    Tensors all{m(in[0])};
    m->eval();
    all.push_back(m(in[0]));
    for (const Tensor& b : m->buffers()) all.push_back(b.to(DType::Float32));
    return all;
  };
  expect_as_recorded("BatchNorm1d", [&] { return runs(nn::BatchNorm1d(2), twice); });
  expect_as_recorded("BatchNorm2d", [&] { return runs(nn::BatchNorm2d(2), twice); });
  expect_as_recorded("BatchNorm3d", [&] { return runs(nn::BatchNorm3d(2), twice); });
  expect_as_recorded("InstanceNorm1d", [] { return runs(nn::InstanceNorm1d(2, {.affine = true})); });
  expect_as_recorded("InstanceNorm2d", [] { return runs(nn::InstanceNorm2d(2, {.affine = true})); });
  expect_as_recorded("InstanceNorm3d", [] { return runs(nn::InstanceNorm3d(2, {.affine = true})); });
  expect_as_recorded("BatchNorm1d of averages",
                     [&] { return runs(nn::BatchNorm1d(2, {.momentum = {}, .bias = false}), twice); });
  expect_as_recorded("BatchNorm2d plain",
                     [&] { return runs(nn::BatchNorm2d(2, {.affine = false, .track_running_stats = false}), twice); });
  expect_as_recorded("InstanceNorm1d tracking",
                     [&] { return runs(nn::InstanceNorm1d(2, {.track_running_stats = true}), twice); });
  expect_as_recorded("InstanceNorm1d of one", [] { return runs(nn::InstanceNorm1d(2)); });
  expect_as_recorded("GroupNorm", [] { return runs(nn::GroupNorm(2, 4, {.bias = false})); });
  expect_as_recorded("LayerNorm", [] { return runs(nn::LayerNorm({2, 3})); });
  expect_as_recorded("LayerNorm without bias", [] { return runs(nn::LayerNorm(3, {.eps = 1e-4, .bias = false})); });
  expect_as_recorded("RMSNorm", [] { return runs(nn::RMSNorm(3)); });
  expect_as_recorded("LocalResponseNorm", [] { return runs(nn::LocalResponseNorm(2)); });
  expect_as_recorded("CrossMapLRN2d", [] { return runs(nn::CrossMapLRN2d(3, {.alpha = 0.1})); });
}

TEST(RecordedLayers, Images) {
#define EXPECT_PADS(n)                                                                           \
  expect_as_recorded("ZeroPad" #n "d", [] { return runs(nn::ZeroPad##n##d(1)); });               \
  expect_as_recorded("ReflectionPad" #n "d", [] { return runs(nn::ReflectionPad##n##d(1)); });   \
  expect_as_recorded("ReplicationPad" #n "d", [] { return runs(nn::ReplicationPad##n##d(1)); }); \
  expect_as_recorded("CircularPad" #n "d", [] { return runs(nn::CircularPad##n##d(1)); });       \
  expect_as_recorded("ConstantPad" #n "d", [] { return runs(nn::ConstantPad##n##d(1, 1.5)); })
  EXPECT_PADS(1);
  EXPECT_PADS(2);
  EXPECT_PADS(3);
#undef EXPECT_PADS
  expect_as_recorded("ZeroPad2d of sides", [] { return runs(nn::ZeroPad2d({1, 0, -1, 2})); });
  expect_as_recorded("Upsample", [] { return runs(nn::Upsample({.scale_factor = {2}})); });
  expect_as_recorded("Upsample to a size", [] {
    return runs(nn::Upsample({.size = Dims{5, 6}, .mode = "bilinear", .align_corners = true}));
  });
  expect_as_recorded("UpsamplingNearest2d", [] { return runs(nn::UpsamplingNearest2d({.size = Dims{3, 5}})); });
  expect_as_recorded("UpsamplingBilinear2d", [] { return runs(nn::UpsamplingBilinear2d({.scale_factor = {1.5, 2}})); });
  expect_as_recorded("PixelShuffle", [] { return runs(nn::PixelShuffle(2)); });
  expect_as_recorded("PixelUnshuffle", [] { return runs(nn::PixelUnshuffle(2)); });
  expect_as_recorded("ChannelShuffle", [] { return runs(nn::ChannelShuffle(2)); });
  expect_as_recorded("Unfold", [] { return runs(nn::Unfold({2, 3}, {.padding = 1})); });
  expect_as_recorded("Fold", [] { return runs(nn::Fold({4, 5}, 2, {.stride = {2, 1}})); });
  expect_as_recorded("CosineSimilarity", [] { return runs<2>(nn::CosineSimilarity()); });
  expect_as_recorded("PairwiseDistance", [] { return runs<2>(nn::PairwiseDistance(1.0, 1e-6, true)); });
}

}  // namespace
}  // namespace mica::testing
