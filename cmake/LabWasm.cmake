# The Lab's engine as WebAssembly: the core, the kernels that the instruments need and lab/, compiled by emscripten for
# one thread and Highway's portable target. `make lab-wasm` configures it; nothing else of the project is built so.
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
set(wasm_folder ${PROJECT_SOURCE_DIR}/lab/wasm)
set(wasm_headers ${PROJECT_BINARY_DIR}/headers)

# A page has one thread and no files, processes or libraries to load: lab/wasm has what the rest calls of those.
file(GLOB_RECURSE wasm_core CONFIGURE_DEPENDS src/*.cpp)
list(FILTER wasm_core EXCLUDE REGEX "/src/(data|distributions|nn|optim|program|recurrent)/")
list(FILTER wasm_core EXCLUDE REGEX "/src/core/(fork|mapped_memory|memory_limits|parallel|system_memory)\\.cpp$")
list(FILTER wasm_core EXCLUDE REGEX "/src/io/hdf5")
# Nor does an instrument call these; what the linker finds to be called must be there.
set(uncalled "attention|convolution|ctc|decompositions|distance|embedding_bag|fft|fold|init|layer_norm|library_recurrent")
string(APPEND uncalled "|linalg[a-z_]*|linear_systems|loss|loss_margin|multi_head_attention|normalization|nn_options")
string(APPEND uncalled "|optim_checks|orthogonal|packed_sequences|pooling|pooling_planes|quantiles|recurrent")
string(APPEND uncalled "|response_norm|sampling|scaled_blocks|scaled_products|special|special_functions|spectral|upsampling")
list(FILTER wasm_core EXCLUDE REGEX "/src/(composite|inplace|shapes|linalg)/(${uncalled})\\.cpp$")
set(wasm_implementations ${wasm_core} ${MICA_GENERATED_CORE_SOURCES})
list(FILTER wasm_implementations INCLUDE REGEX
     "/src/((composite|inplace|layouts|shapes|views)/|kernel_registry.cpp)")
set(wasm_generated ${MICA_GENERATED_CORE_SOURCES})
list(FILTER wasm_generated EXCLUDE REGEX "/src/(ops_)?(${uncalled})\\.cpp$")
list(REMOVE_ITEM wasm_core ${wasm_implementations})
list(REMOVE_ITEM wasm_generated ${wasm_implementations})

set(wasm_kernels ${PROJECT_SOURCE_DIR}/backends/cpu/register.cpp ${PROJECT_SOURCE_DIR}/backends/cpu/target.cpp)
foreach(folder creation gemm index pointwise quantized random reduce scan softmax sort sparse)
  file(GLOB found CONFIGURE_DEPENDS backends/cpu/${folder}/*.cpp)
  list(APPEND wasm_kernels ${found})
endforeach()
list(FILTER wasm_kernels EXCLUDE REGEX "/(special[a-z_]*|implicit_gradients|embedding[a-z_]*|logsumexp|norm|prod|var)\\.cpp$")

file(GLOB wasm_lab CONFIGURE_DEPENDS lab/*.cpp lab/wasm/*.cpp)
list(FILTER wasm_lab EXCLUDE REGEX "/lab/(execute|extension|http_server|site)\\.cpp$")

# Libraries that are nothing but headers here, without the rest of this machine's headers.
file(MAKE_DIRECTORY ${wasm_headers})
foreach(library hwy nlohmann)
  find_path(MICA_${library}_HEADERS ${library} PATHS /usr/include /usr/local/include NO_DEFAULT_PATH
            NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  file(CREATE_LINK ${MICA_${library}_HEADERS}/${library} ${wasm_headers}/${library} SYMBOLIC)
endforeach()

mica_merge(wasm_core_sources 8 ${wasm_core})
mica_merge(wasm_generated_sources 3 ${wasm_generated})
add_library(lab_core STATIC ${wasm_core_sources} ${wasm_generated_sources} ${wasm_implementations})
# Kernels make themselves known as the program starts, so that all are linked; of the core, what is called.
mica_merge(wasm_kernel_sources 4 ${wasm_kernels})
add_executable(lab_engine ${wasm_kernel_sources} ${wasm_lab})
target_link_libraries(lab_engine PRIVATE lab_core)
foreach(part lab_core lab_engine)
  add_dependencies(${part} mica_codegen)
  target_include_directories(${part} PRIVATE ${wasm_folder}/headers ${wasm_headers} include ${MICA_GENERATED_DIR}/include . src lab)
  # What a page is not told of its machine: the kernels take their defaults.
  target_compile_definitions(${part} PRIVATE HWY_COMPILE_ONLY_EMU128 _SC_LEVEL2_CACHE_SIZE=-1 _SC_LEVEL1_DCACHE_ASSOC=-1)
  target_compile_options(
    ${part} PRIVATE -Os -fwasm-exceptions -ffp-contract=off -fno-math-errno -Wall -Wextra
                    "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")
endforeach()
target_link_options(
  lab_engine
  PRIVATE
  -O2
  -fwasm-exceptions
  -sALLOW_MEMORY_GROWTH=1
  -sMODULARIZE=1
  -sEXPORT_ES6=1
  -sENVIRONMENT=worker
  -sEXPORTED_FUNCTIONS=_mica_lab_ask,_malloc,_free
  -sEXPORTED_RUNTIME_METHODS=UTF8ToString,stringToUTF8,lengthBytesUTF8)
