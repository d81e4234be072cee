// target = matrix @ source + bias for every image, whose rows are its channels. For float32 with channels first.
#pragma once

#include "backends/cpu/convolution/problem.h"

namespace mica::cpu::convolution {

struct PlaneProduct {
  int64_t batch;
  Images source, target;
  const float* matrix;  // rows x depth
  int64_t rows, depth;
  int64_t row_stride, depth_stride;
  const float* bias;  // one per row, or null
  recording::BlockWork* work = nullptr;
  const recording::ChannelFactors* factors = nullptr;  // what to multiply the source by, or null
};

bool suits_planes(const PlaneProduct& p);
void multiply_planes(const PlaneProduct& p);
bool suits_turned(const PlaneProduct& p);
void multiply_turned(const PlaneProduct& p);

}  // namespace mica::cpu::convolution
