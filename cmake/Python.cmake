# The extension mica._C: hand-written bindings and generated ones, plain CPython, linked to libmica.
file(GLOB_RECURSE MICA_PYTHON_SOURCES CONFIGURE_DEPENDS python/src/*.cpp)
Python_add_library(mica_extension MODULE WITH_SOABI ${MICA_PYTHON_SOURCES} ${MICA_GENERATED_PYTHON_SOURCES})
target_link_libraries(mica_extension PRIVATE mica mica_extension_flags)
target_link_options(mica_extension PRIVATE -Wl,--gc-sections -Wl,--as-needed)
mica_export_only(mica_extension extension.map)
target_include_directories(mica_extension PRIVATE . src python/src)
add_dependencies(mica_extension mica_codegen)

# <build>/python/mica is an importable package: links to the sources, so that an edit is live, and to what is generated
# for the package (<generated>/package/*, type stubs among it), beside the extension.
set(MICA_PACKAGE_DIR ${PROJECT_BINARY_DIR}/python/mica)
set_target_properties(
  mica_extension PROPERTIES OUTPUT_NAME _C LIBRARY_OUTPUT_DIRECTORY ${MICA_PACKAGE_DIR} INSTALL_RPATH "$ORIGIN/lib")
set(MICA_GENERATED_PACKAGE_FILES ${MICA_GENERATED_FILES})
list(FILTER MICA_GENERATED_PACKAGE_FILES INCLUDE REGEX "^${MICA_GENERATED_DIR}/package/")
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
list(TRANSFORM MICA_GENERATED_PACKAGE_FILES REPLACE "^${MICA_GENERATED_DIR}/package/([^/]+).*" "\\1" OUTPUT_VARIABLE
                                                                                               generated_entries)
list(REMOVE_DUPLICATES generated_entries)
foreach(entry IN LISTS generated_entries)
  file(CREATE_LINK ${MICA_GENERATED_DIR}/package/${entry} ${MICA_PACKAGE_DIR}/${entry} SYMBOLIC)
endforeach()
