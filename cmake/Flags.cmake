# Compile and link flags, as interface libraries: one for each kind of source.
include(CheckLinkerFlag)
file(RELATIVE_PATH MICA_SOURCE_FROM_BUILD ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
string(REGEX REPLACE "/$" "" MICA_SOURCE_FROM_BUILD "${MICA_SOURCE_FROM_BUILD}")

add_library(mica_warning_flags INTERFACE)
target_compile_options(mica_warning_flags INTERFACE -Wall -Wextra -Wno-psabi
                                                    $<$<BOOL:${MICA_WERROR}>:-Werror>)

add_library(mica_common_flags INTERFACE)
target_link_libraries(mica_common_flags INTERFACE mica_warning_flags)
target_compile_options(
  mica_common_flags
  INTERFACE -fvisibility-inlines-hidden
            -ffunction-sections
            -fdata-sections
            # Calls within the library go straight to their target instead of through the linkage table.
            -fno-semantic-interposition
            # Thread-local state is read on every call: one instruction instead of a call into the loader. The loader
            # keeps room for it that all libraries share; one that a program opens late may find none left.
            $<$<NOT:$<BOOL:$<TARGET_PROPERTY:MICA_OPENED_LATE>>>:-ftls-model=initial-exec>
            # A fused multiply-add appears only where the source asks for it, so that the vector body and the scalar
            # tail of a loop, and every instruction set, give the same bits. (g++ fuses the products and sums of complex
            # products nevertheless: backends/cpu/complex_product.h.)
            -ffp-contract=off
            # Complex products and quotients without C99's recovery of infinities from NaNs, as torch computes them.
            -fcx-fortran-rules
            -fno-math-errno
            # Paths in messages are relative to the source root, whether the compiler sees them whole or, through
            # ccache, relative to the build directory.
            "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/="
            "-ffile-prefix-map=${MICA_SOURCE_FROM_BUILD}/=")

if(NOT MICA_SANITIZE_THREADS)
  set(MICA_CORE_OPTIMISATION $<$<CONFIG:Release>:-O2>)
endif()
add_library(mica_core_flags INTERFACE)
target_link_libraries(mica_core_flags INTERFACE mica_common_flags)
target_compile_options(mica_core_flags INTERFACE ${MICA_CORE_OPTIMISATION})

# For what few calls come to, or what takes long beside its own instructions: g++ takes a third less time.
add_library(mica_shell_flags INTERFACE)
target_link_libraries(mica_shell_flags INTERFACE mica_common_flags)
target_compile_options(mica_shell_flags INTERFACE $<$<CONFIG:Release>:-O1>)

add_library(mica_kernel_flags INTERFACE)
target_link_libraries(mica_kernel_flags INTERFACE mica_common_flags)
target_compile_options(mica_kernel_flags INTERFACE $<$<CONFIG:Release>:-O3> -fno-trapping-math)

add_library(mica_extension_flags INTERFACE)
target_link_libraries(mica_extension_flags INTERFACE mica_common_flags)
target_compile_options(mica_extension_flags INTERFACE ${MICA_CORE_OPTIMISATION} -fvisibility=hidden)

# For extensions that wait for others or that no program waits for: messages between processes, the Lab's server.
add_library(mica_tool_flags INTERFACE)
target_link_libraries(mica_tool_flags INTERFACE mica_common_flags)
target_compile_options(mica_tool_flags INTERFACE $<$<CONFIG:Release>:-O1> -fvisibility=hidden)

add_library(mica_link_flags INTERFACE)
target_link_options(mica_link_flags INTERFACE -Wl,--gc-sections -Wl,--as-needed -Wl,-Bsymbolic-functions)

# The names that a library exports; all others are hidden.
function(mica_export_only target map)
  set(map ${PROJECT_SOURCE_DIR}/cmake/exports/${map})
  target_link_options(${target} PRIVATE -Wl,--version-script=${map})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
endfunction()

# Kernels are compiled for AVX2 and AVX3 (AVX-512 F, BW, DQ, VL) on x86-64 and for NEON on aarch64, chosen at run time.
# Highway's targets are bits, the better one the lower; the masks name every target above AVX3 (bits 0 to 7) and every
# one above NEON (bits 15 to 27), those of later Highway releases included.
#
# A build for the machine that it runs on has the better of the two sets alone. The kernels then take half as long to
# compile, and Highway can be precompiled. The library does not run on a machine that has less.
set(MICA_VECTOR_SETS all CACHE STRING "Vector sets of the kernels: all, or native for this machine's alone")
set_property(CACHE MICA_VECTOR_SETS PROPERTY STRINGS all native)
if(NOT MICA_VECTOR_SETS MATCHES "^(all|native)$")
  message(FATAL_ERROR "MICA_VECTOR_SETS is ${MICA_VECTOR_SETS}; it may be all or native")
elseif(MICA_VECTOR_SETS STREQUAL "native" AND CMAKE_CROSSCOMPILING)
  message(FATAL_ERROR "MICA_VECTOR_SETS=native asks for the sets of this machine, which is not the one it is compiled for")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(isa x86-64-v3)
  set(disabled 0xFF)
  if(MICA_VECTOR_SETS STREQUAL "native")
    include(CheckCXXSourceRuns)
    check_cxx_source_runs(
      "int main() { return !(__builtin_cpu_supports(\"avx512f\") && __builtin_cpu_supports(\"avx512vl\") &&
       __builtin_cpu_supports(\"avx512dq\") && __builtin_cpu_supports(\"avx512bw\") && __builtin_cpu_supports(\"avx512cd\")); }"
      MICA_MACHINE_HAS_AVX512)
    if(MICA_MACHINE_HAS_AVX512)
      set(isa x86-64-v4)
    else()
      set(disabled 0x1FF)
    endif()
    set(MICA_KERNEL_HEADERS ${PROJECT_SOURCE_DIR}/backends/cpu/simd/precompiled.h)
    set(MICA_MERGES_VECTOR_KERNELS ON)
    # g++ 12 finds its own immintrin.h to read values that nothing has set. Highway silences that where it reads the
    # header, which a precompiled one forgets. Builds of all sets, as CI's, do warn of such values.
    target_compile_options(mica_kernel_flags INTERFACE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  target_compile_options(mica_kernel_flags INTERFACE -march=${isa} -maes -mpclmul)
  target_compile_definitions(mica_kernel_flags INTERFACE HWY_DISABLED_TARGETS=${disabled})
  # The mark makes the loader refuse the library on an older CPU, where it would die of an illegal instruction.
  check_linker_flag(CXX -Wl,-z,${isa} MICA_LINKER_MARKS_ISA)
  if(MICA_LINKER_MARKS_ISA)
    target_link_options(mica_link_flags INTERFACE -Wl,-z,${isa})
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # Highway's NEON functions are compiled for +crypto. Code around them that has no target of its own, like the implicit
  # constructor of a struct of vectors, must be compiled for the same, or nothing can be inlined into it.
  target_compile_options(mica_kernel_flags INTERFACE -march=armv8-a+crypto)
  target_compile_definitions(mica_kernel_flags INTERFACE HWY_DISABLED_TARGETS=0xFFF8000)
  set(MICA_KERNEL_HEADERS ${PROJECT_SOURCE_DIR}/backends/cpu/simd/precompiled.h)
endif()

# For everything that follows. The kernels take most of the time: an hour and more on two cores.
if(MICA_SANITIZE)
  set(MICA_SANITIZE_FLAGS -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
                          -D_GLIBCXX_ASSERTIONS)
  if(MICA_SANITIZE_KERNELS)
    add_compile_options(${MICA_SANITIZE_FLAGS})
  else()
    add_compile_options("$<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:NAME>,mica_kernels>>:${MICA_SANITIZE_FLAGS}>"
                        "$<$<STREQUAL:$<TARGET_PROPERTY:NAME>,mica_kernels>:-O1>")
  endif()
  add_link_options(-fsanitize=address,undefined)
  # libasan is preloaded into Python, so that its symbols are undefined in the libraries.
  target_link_options(mica_link_flags INTERFACE -Wl,-z,undefs)
endif()
# Kernels run on shares of a tensor between two waits of the pool, which ThreadSanitizer sees; compiled as in a release,
# they come out of ccache. Those that keep what threads share are compiled for it like all the rest.
if(MICA_SANITIZE_THREADS)
  set(MICA_THREAD_FLAGS -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread)
  add_compile_options("$<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:NAME>,mica_kernels>>:${MICA_THREAD_FLAGS}>")
  add_link_options(-fsanitize=thread)
  target_link_options(mica_link_flags INTERFACE -Wl,-z,undefs)
  # They are merged with no other source and have no precompiled header, which fits sources of the same flags only.
  set(MICA_SHARED_KERNELS
      fft/dense_plan.cpp fft/long_transform.cpp fft/plan.cpp gemm/gemm.cpp gemm/packed.cpp gemm/packed_blocks.cpp
      gemm/workspace.cpp linalg/lapack.cpp)
  list(TRANSFORM MICA_SHARED_KERNELS PREPEND ${PROJECT_SOURCE_DIR}/backends/cpu/)
  set_source_files_properties(${MICA_SHARED_KERNELS} PROPERTIES COMPILE_OPTIONS "${MICA_THREAD_FLAGS}"
                                                                SKIP_PRECOMPILE_HEADERS ON)
endif()
