// Chebyshev series of modified Bessel functions for float32, good to 2e-8: interpolated at 200 of Chebyshev's points.
#pragma once

#include "backends/cpu/simd/bessel_tables.h"

namespace mica::cuda::series {

// exp(-x) I0(x) for x in [0, 8]
inline constexpr double kI0eSmallTerms[] = {0.338397637204738,       -0.3046826723431983,    0.17162090152220866,
                                            -0.09490109704804749,    0.04930528423967055,    -0.023737414805899363,
                                            0.010546460394594743,    -0.004324309995050513,  0.0016394756169413084,
                                            -0.000576375574538548,   0.00018850288509574377, -5.7541950100516996e-05,
                                            1.644844807049961e-05,   -4.41673835851808e-06,  1.1173875389058897e-06,
                                            -2.6707938530545763e-07, 6.046995004838074e-08,  -1.3000250175254635e-08};
inline constexpr cpu::bessel::Series kI0eSmall{kI0eSmallTerms, 18, 18};

// sqrt(x) exp(-x) I0(x) for 1 / x in [0, 1 / 8]
inline constexpr double kI0eLargeTerms[] = {0.40224520550705434,   0.003369116478255698,  6.889758346915187e-05,
                                            2.891370520892167e-06, 2.048918588570814e-07, 2.266668996497856e-08,
                                            3.396231893493251e-09, 4.940602815750595e-10};
inline constexpr cpu::bessel::Series kI0eLarge{kI0eLargeTerms, 8, 8};

// exp(-x) I1(x) / x for x in [0, 8]
inline constexpr double kI1eSmallTerms[] = {0.1262935932218168,      -0.176416518357834,     0.10264365868984707,
                                            -0.05294598120809491,    0.024726449030626447,   -0.010564084894626149,
                                            0.004156422944312776,    -0.0015135724506312326, 0.0005122859561685606,
                                            -0.00016176081582588154, 4.781565107545918e-05,  -1.3273163655884712e-05,
                                            3.47025130802453e-06,    -8.568720265039742e-07, 2.0032947525366884e-07,
                                            -4.445059124447148e-08,  9.381537293684516e-09,  -1.887249773957489e-09};
inline constexpr cpu::bessel::Series kI1eSmall{kI1eSmallTerms, 18, 18};

// sqrt(x) exp(-x) I1(x) for 1 / x in [0, 1 / 8]
inline constexpr double kI1eLargeTerms[] = {0.3892881175091401,      -0.009761097491361425,  -0.00011058893876265907,
                                            -3.8825648088014475e-06, -2.512236238816357e-07, -2.631468840164075e-08,
                                            -3.835380517624998e-09,  -5.589743112821566e-10};
inline constexpr cpu::bessel::Series kI1eLarge{kI1eLargeTerms, 8, 8};

}  // namespace mica::cuda::series
