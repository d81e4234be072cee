# The extension mica._distributed: the engine of torch.distributed. Apart from mica._C, so that an import does not load it.
file(GLOB MICA_DISTRIBUTED_SOURCES CONFIGURE_DEPENDS distributed/*.cpp distributed/mpi/*.cpp distributed/python/*.cpp)
Python_add_library(mica_distributed MODULE WITH_SOABI ${MICA_DISTRIBUTED_SOURCES})
target_link_libraries(mica_distributed PRIVATE mica mica_extension_flags Threads::Threads)  # tensors: plain_tensor.cpp only
target_link_options(mica_distributed PRIVATE -Wl,--gc-sections -Wl,--as-needed)
mica_export_only(mica_distributed distributed.map)
target_include_directories(mica_distributed PRIVATE . include)
mica_precompile(mica_distributed)
add_dependencies(mica_extension mica_distributed)
set_target_properties(
  mica_distributed PROPERTIES OUTPUT_NAME _distributed LIBRARY_OUTPUT_DIRECTORY ${MICA_PACKAGE_DIR}
                              INSTALL_RPATH "$ORIGIN/lib")

# Reductions are loops over elements, compiled like kernels. libmica, which is loaded already, is for the same processors.
set_source_files_properties(
  distributed/reduce.cpp PROPERTIES COMPILE_OPTIONS "$<TARGET_PROPERTY:mica_kernel_flags,INTERFACE_COMPILE_OPTIONS>"
                                    SKIP_PRECOMPILE_HEADERS ON)

# libmica_gloo: processes of several hosts. Where Gloo cannot be had the build goes on, and naming several hosts is an error.
find_path(MICA_GLOO_INCLUDE_DIR gloo/rendezvous/context.h)
find_library(MICA_GLOO_LIBRARY gloo)
if(MICA_GLOO_INCLUDE_DIR AND MICA_GLOO_LIBRARY)
  add_library(mica_gloo MODULE distributed/gloo/gloo_group.cpp distributed/gloo/gloo_links.cpp distributed/call.cpp
                               distributed/fingerprint.cpp distributed/reduce.cpp)
  target_link_libraries(mica_gloo PRIVATE ${MICA_GLOO_LIBRARY} mica_extension_flags Threads::Threads)
  target_include_directories(mica_gloo PRIVATE . include)
  target_include_directories(mica_gloo SYSTEM PRIVATE ${MICA_GLOO_INCLUDE_DIR})
  mica_export_only(mica_gloo gloo.map)
  set_target_properties(mica_gloo PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${MICA_PACKAGE_DIR} INSTALL_RPATH "$ORIGIN/lib")
  add_dependencies(mica_distributed mica_gloo)
endif()
