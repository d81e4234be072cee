// Choices of precision that programs make: torch.backends.cuda.matmul and torch.backends.cudnn.
#pragma once

namespace mica::cuda {

enum class Flag : int { MatmulTf32, ConvolutionTf32, Count };

bool flag(Flag which);
void set_flag(Flag which, bool value);

}  // namespace mica::cuda
