# The extension mica._lab: the server of `mica lab`. Apart from mica._C, so that an import does not load it.
find_path(MICA_JSON_INCLUDE_DIR nlohmann/json.hpp REQUIRED)
file(GLOB MICA_LAB_SOURCES CONFIGURE_DEPENDS lab/*.cpp)
mica_merge(lab_sources 7 ${MICA_LAB_SOURCES})
Python_add_library(mica_lab MODULE WITH_SOABI ${lab_sources})
target_link_libraries(mica_lab PRIVATE mica mica_tool_flags Threads::Threads)
target_link_options(mica_lab PRIVATE -Wl,--gc-sections -Wl,--as-needed)
mica_export_only(mica_lab lab.map)
target_include_directories(mica_lab PRIVATE . lab)
target_include_directories(mica_lab SYSTEM PRIVATE ${MICA_JSON_INCLUDE_DIR})
add_dependencies(mica_lab mica_codegen)
mica_precompile(mica_lab <nlohmann/json.hpp> <mica/tensor.h>)
add_dependencies(mica_extension mica_lab)
set_target_properties(
  mica_lab PROPERTIES OUTPUT_NAME _lab LIBRARY_OUTPUT_DIRECTORY ${MICA_PACKAGE_DIR} INSTALL_RPATH "$ORIGIN/lib"
                      MICA_OPENED_LATE ON)

# The files that the page links to as the code that does what it shows.
set(MICA_LAB_LINKED
    backends/cpu/gemm/gemm.cpp
    docs/errata.md
    lab/broadcasting.cpp
    lab/calculator.cpp
    lab/einsum.cpp
    lab/evaluate.cpp
    lab/fit.cpp
    lab/operations.cpp
    lab/pattern.cpp
    lab/plan.cpp
    lab/precision.cpp
    lab/programs.cpp
    lab/quiz.cpp
    lab/roofline.cpp
    lab/sparse.cpp
    lab/strides.cpp
    lab/transfer.cpp
    ops/views.toml
    python/mica/inspect/_estimate.py
    python/mica/inspect/_roofline.py
    src/autograd/engine.cpp
    src/autograd/saved_tensor.cpp
    src/composite/copy.cpp
    src/core/allocate.cpp
    src/core/dtype.cpp
    src/core/geometry.cpp
    src/core/pointwise.cpp
    src/inplace/copy.cpp
    src/inspect/copies.cpp
    src/inspect/explain.cpp
    src/views/views.cpp)
foreach(file IN LISTS MICA_LAB_LINKED)
  get_filename_component(folder ${file} DIRECTORY)
  file(MAKE_DIRECTORY ${MICA_PACKAGE_DIR}/_lab_sources/${folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${file} ${MICA_PACKAGE_DIR}/_lab_sources/${file} SYMBOLIC)
  if(SKBUILD)
    install(FILES ${file} DESTINATION _lab_sources/${folder})
  endif()
endforeach()
