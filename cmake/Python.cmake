# The extension mica._C: hand-written bindings and generated ones, plain CPython, linked to libmica.
file(GLOB_RECURSE MICA_PYTHON_SOURCES CONFIGURE_DEPENDS python/src/*.cpp)
if(NOT MICA_PYTHON_SOURCES)
  return()
endif()
Python_add_library(mica_extension MODULE WITH_SOABI ${MICA_PYTHON_SOURCES} ${MICA_GENERATED_PYTHON_SOURCES})
target_link_libraries(mica_extension PRIVATE mica mica_extension_flags)
target_link_options(mica_extension PRIVATE -Wl,--gc-sections -Wl,--as-needed)
target_include_directories(mica_extension PRIVATE . python/src)
add_dependencies(mica_extension mica_codegen)
# Argument parsing gains nothing from -O2 and takes far longer to compile with it.
set_source_files_properties(${MICA_GENERATED_PYTHON_SOURCES} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)

# <build>/python/mica is an importable package: links to the sources, so that an edit is live, beside the extension.
set(MICA_PACKAGE_DIR ${PROJECT_BINARY_DIR}/python/mica)
set_target_properties(
  mica_extension PROPERTIES OUTPUT_NAME _C LIBRARY_OUTPUT_DIRECTORY ${MICA_PACKAGE_DIR} INSTALL_RPATH "$ORIGIN/lib")
file(GLOB package_entries CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/mica python/mica/*)
list(REMOVE_ITEM package_entries __pycache__)
file(GLOB stale_entries LIST_DIRECTORIES true ${MICA_PACKAGE_DIR}/*)
foreach(entry IN LISTS stale_entries)
  if(IS_SYMLINK ${entry})
    file(REMOVE ${entry})
  endif()
endforeach()
file(MAKE_DIRECTORY ${MICA_PACKAGE_DIR})
foreach(entry IN LISTS package_entries)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/mica/${entry} ${MICA_PACKAGE_DIR}/${entry} SYMBOLIC)
endforeach()
