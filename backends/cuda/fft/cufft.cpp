#include "backends/cuda/fft/cufft.h"

#include "backends/cuda/library.h"
#include "mica/error.h"

namespace mica::cuda::cufft {

const Api& api() {
  static const Api loaded = [] {
    static constexpr const char* kNames[] = {"libcufft.so.12", "libcufft.so.11", "libcufft.so", nullptr};
    void* library = open_library(kNames);
    MICA_CHECK_KIND(library, NotImplemented,
                    "Fourier transforms on CUDA need cuFFT, and libcufft.so.12 could not be opened: install the CUDA "
                    "toolkit or the package nvidia-cufft, or name the folder of the library in MICA_CUDA_LIBRARIES");
    Api a{};
    auto load = [&]<class F>(F& function, const char* name) { function = reinterpret_cast<F>(symbol(library, name)); };
    load(a.create, "cufftCreate");
    load(a.set_auto_allocation, "cufftSetAutoAllocation");
    load(a.make, "cufftMakePlanMany64");
    load(a.set_work_area, "cufftSetWorkArea");
    load(a.set_stream, "cufftSetStream");
    load(a.complex_to_complex, "cufftExecC2C");
    load(a.real_to_complex, "cufftExecR2C");
    load(a.complex_to_real, "cufftExecC2R");
    load(a.double_complex_to_complex, "cufftExecZ2Z");
    load(a.double_real_to_complex, "cufftExecD2Z");
    load(a.double_complex_to_real, "cufftExecZ2D");
    return a;
  }();
  return loaded;
}

}  // namespace mica::cuda::cufft
