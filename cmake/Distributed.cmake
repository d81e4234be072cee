# The extension mica._distributed: the engine of torch.distributed. Apart from mica._C, so that an import does not load it.
file(GLOB MICA_DISTRIBUTED_SOURCES CONFIGURE_DEPENDS distributed/*.cpp distributed/mpi/*.cpp distributed/python/*.cpp)
set(reduce ${CMAKE_CURRENT_SOURCE_DIR}/distributed/reduce.cpp)
list(REMOVE_ITEM MICA_DISTRIBUTED_SOURCES ${reduce})
mica_merge(distributed_sources 8 ${MICA_DISTRIBUTED_SOURCES})

# Reductions are loops over elements, compiled like kernels, once for both libraries. libmica, which is loaded already, is
# for the same processors.
add_library(mica_distributed_reduce OBJECT ${reduce})
target_link_libraries(mica_distributed_reduce PRIVATE mica_kernel_flags)
target_compile_options(mica_distributed_reduce PRIVATE -fvisibility=hidden)
target_include_directories(mica_distributed_reduce PRIVATE . include)
add_dependencies(mica_distributed_reduce mica_codegen)

Python_add_library(mica_distributed MODULE WITH_SOABI ${distributed_sources} $<TARGET_OBJECTS:mica_distributed_reduce>)
target_link_libraries(mica_distributed PRIVATE mica mica_tool_flags Threads::Threads)  # tensors: plain_tensor.cpp only
target_link_options(mica_distributed PRIVATE -Wl,--gc-sections -Wl,--as-needed)
mica_export_only(mica_distributed distributed.map)
target_include_directories(mica_distributed PRIVATE . include)
mica_precompile(mica_distributed)
add_dependencies(mica_extension mica_distributed)
set_target_properties(
  mica_distributed PROPERTIES OUTPUT_NAME _distributed LIBRARY_OUTPUT_DIRECTORY ${MICA_PACKAGE_DIR}
                              INSTALL_RPATH "$ORIGIN/lib" MICA_OPENED_LATE ON)
set_target_properties(mica_distributed_reduce PROPERTIES MICA_OPENED_LATE ON)

# libmica_gloo: processes of several hosts. Where Gloo cannot be had the build goes on, and naming several hosts is an error.
find_path(MICA_GLOO_INCLUDE_DIR gloo/rendezvous/context.h)
find_library(MICA_GLOO_LIBRARY gloo)
if(MICA_GLOO_INCLUDE_DIR AND MICA_GLOO_LIBRARY)
  mica_merge(gloo_sources 8 ${CMAKE_CURRENT_SOURCE_DIR}/distributed/gloo/gloo_group.cpp
             ${CMAKE_CURRENT_SOURCE_DIR}/distributed/gloo/gloo_links.cpp
             ${CMAKE_CURRENT_SOURCE_DIR}/distributed/gloo/gloo_messages.cpp)
  mica_merge(gloo_shared 8 WORD gloo ${CMAKE_CURRENT_SOURCE_DIR}/distributed/call.cpp
             ${CMAKE_CURRENT_SOURCE_DIR}/distributed/fingerprint.cpp)
  add_library(mica_gloo MODULE ${gloo_sources} ${gloo_shared} $<TARGET_OBJECTS:mica_distributed_reduce>)
  target_link_libraries(mica_gloo PRIVATE ${MICA_GLOO_LIBRARY} mica_tool_flags Threads::Threads)
  target_include_directories(mica_gloo PRIVATE . include)
  target_include_directories(mica_gloo SYSTEM PRIVATE ${MICA_GLOO_INCLUDE_DIR})
  mica_export_only(mica_gloo gloo.map)
  set_target_properties(mica_gloo PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${MICA_PACKAGE_DIR} INSTALL_RPATH "$ORIGIN/lib"
                                             MICA_OPENED_LATE ON)
  add_dependencies(mica_distributed mica_gloo)
endif()
