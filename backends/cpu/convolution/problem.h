// A convolution as its kernels see it. It always has three spatial dimensions: missing ones are put in front, with
// size 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/block_work.h"
#include "mica/allocator.h"
#include "mica/backend/kernel_types.h"

namespace mica::cpu::convolution {

// The images on one side of a convolution. Strides are in elements. One position follows another at strides[2].
struct Images {
  char* data;
  int64_t batch_stride, channel_stride;
  int64_t sizes[3], strides[3];

  int64_t positions() const { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t position_stride() const { return strides[2]; }
  bool channels_last() const { return channel_stride == 1 && strides[2] != 1; }
};

struct Problem {
  DType dtype;
  int64_t element_size;
  int64_t batch, groups;
  int64_t channels, filters;  // those of one group
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  Images input, output;
  char* weight;
  int64_t filter_stride, weight_channel_stride, tap_strides[3];
  const void* bias;
  recording::BlockWork* work = nullptr;                // what to run on finished blocks of the dense output, or null
  const recording::ChannelFactors* factors = nullptr;  // what to multiply the dense input by, or null
  bool interleaved = false;  // whether the output has its channels side by side, which no tensor knows

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t depth() const { return channels * taps(); }  // the products that make one element of the output
  char* input_at(int64_t image, int64_t group) const {
    return input.data + (image * input.batch_stride + group * channels * input.channel_stride) * element_size;
  }
  char* output_at(int64_t image, int64_t group) const {
    return output.data + (image * output.batch_stride + group * filters * output.channel_stride) * element_size;
  }
  char* weight_at(int64_t group) const { return weight + group * filters * filter_stride * element_size; }
  const char* bias_at(int64_t group) const {
    return bias ? static_cast<const char*>(bias) + group * filters * element_size : nullptr;
  }
  // Whether each output has one tap, at its own position: then the images are matrices as they are.
  bool is_pointwise() const;
};

// Leaves out the taps of a padded kernel that never meet an image of one position. Returns whether the problem has
// become a pointwise one.
bool drop_unmet_taps(Problem& p);

Problem make_problem(const TensorView& input, const TensorView& output, const TensorView& weight,
                     const TensorView& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                     int64_t groups);

// So many bytes of a band are copied at a time: they stay in the second cache.
inline constexpr int64_t kBandBytes = 1 << 18;
// There are more tasks than threads, so that no thread ends much later than the others.
inline constexpr int64_t kTasksPerThread = 4;

// Memory for the length of a scope. It comes from the cache of tensors' memory, so that the system is rarely asked.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : data_(static_cast<char*>(cpu_allocate(bytes))), bytes_(bytes) {}
  ~Scratch() { cpu_free(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  char* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  char* data_;
  size_t bytes_;
};

// The general ways, for every dtype: columns of sliding blocks, and matrix products.
void convolve_columns(const Problem& p);
void input_gradient_columns(const Problem& p);   // fills the input
void weight_gradient_columns(const Problem& p);  // fills the weight

// One tap, no padding and a stride, in float32 with channels first. The pixels that are read are copied side by side,
// and are then the images of a plain 1 x 1 convolution.
bool skips_pixels(const Problem& p);
void convolve_read_pixels(const Problem& p);

inline float factor_of(const recording::ChannelFactors& f, int64_t image, int64_t channel) {
  return f.data[image * f.image_step + channel * f.channel_step];
}
// Whether the way that computes the problem can multiply the input by factors as it reads it.
bool takes_factors(const Problem& p);

// Small images in float32 with channels first: the columns of many images make one product. They return false where the
// problem does not suit.
bool convolve_together(const Problem& p);
bool input_gradient_together(const Problem& p);
bool weight_gradient_together(const Problem& p);

// A kernel as large as the image, so that each filter meets it once: images and filters are rows of matrices as they
// are.
bool is_whole(const Problem& p);
void convolve_whole(const Problem& p);
void input_gradient_whole(const Problem& p);
void weight_gradient_whole(const Problem& p);

}  // namespace mica::cpu::convolution
