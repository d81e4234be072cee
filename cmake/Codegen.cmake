# The generator writes C++ from the operation table (ops/*.toml). Its outputs are listed when CMake configures and
# written when the build runs; it leaves a file alone whose content stays the same, so only what changed is compiled.
set(MICA_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)
set(MICA_GENERATOR ${PROJECT_SOURCE_DIR}/codegen/generate.py)
file(GLOB_RECURSE MICA_GENERATOR_INPUTS CONFIGURE_DEPENDS ops/*.toml codegen/*.py)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${MICA_GENERATOR_INPUTS})

execute_process(
  COMMAND ${Python_EXECUTABLE} ${MICA_GENERATOR} --list --out ${MICA_GENERATED_DIR}
  OUTPUT_VARIABLE generated
  RESULT_VARIABLE generator_status)
if(NOT generator_status EQUAL 0)
  message(FATAL_ERROR "codegen/generate.py --list failed")
endif()
string(REGEX REPLACE "[\r\n]+" ";" generated "${generated}")
list(REMOVE_ITEM generated "")
list(TRANSFORM generated PREPEND ${MICA_GENERATED_DIR}/)
set(MICA_GENERATED_FILES ${generated})

set(MICA_GENERATED_CORE_SOURCES ${generated})
list(FILTER MICA_GENERATED_CORE_SOURCES INCLUDE REGEX "^${MICA_GENERATED_DIR}/src/.*\\.cpp$")
set(MICA_GENERATED_PYTHON_SOURCES ${generated})
list(FILTER MICA_GENERATED_PYTHON_SOURCES INCLUDE REGEX "^${MICA_GENERATED_DIR}/python/.*\\.cpp$")
set(MICA_GENERATED_PROGRAM_SOURCES ${generated})
list(FILTER MICA_GENERATED_PROGRAM_SOURCES INCLUDE REGEX "^${MICA_GENERATED_DIR}/program/.*\\.cpp$")
set_source_files_properties(${MICA_GENERATED_FILES} PROPERTIES GENERATED TRUE)

add_custom_command(
  OUTPUT ${MICA_GENERATED_DIR}/generated.stamp
  BYPRODUCTS ${MICA_GENERATED_FILES}
  COMMAND ${Python_EXECUTABLE} ${MICA_GENERATOR} --out ${MICA_GENERATED_DIR}
  COMMAND ${CMAKE_COMMAND} -E touch ${MICA_GENERATED_DIR}/generated.stamp
  DEPENDS ${MICA_GENERATOR_INPUTS}
  COMMENT "Generating code from ops/"
  VERBATIM)
add_custom_target(mica_codegen DEPENDS ${MICA_GENERATED_DIR}/generated.stamp)
