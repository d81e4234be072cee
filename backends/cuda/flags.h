// Choices that programs make: precision (torch.backends.cuda.matmul, torch.backends.cudnn), and which kernels are used.
#pragma once

namespace mica::cuda {

enum class Flag : int { MatmulTf32, ConvolutionTf32, CudnnAttention, Deterministic, Count };

bool flag(Flag which);
void set_flag(Flag which, bool value);

}  // namespace mica::cuda
