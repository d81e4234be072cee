# Installs the build into a prefix, then configures, builds and runs examples/cpp_project against it.
# cmake -D BUILD=... -D SOURCE=... -D COMPILER=... -P installed_project.cmake
set(prefix ${BUILD}/installed/prefix)
set(example ${BUILD}/installed/example)
file(REMOVE_RECURSE ${BUILD}/installed)
foreach(
  command
  "--install;${BUILD};--prefix;${prefix}"
  "-S;${SOURCE}/examples/cpp_project;-B;${example};-D;CMAKE_PREFIX_PATH=${prefix};-D;CMAKE_CXX_COMPILER=${COMPILER};-D;CMAKE_BUILD_TYPE=Release"
  "--build;${example}")
  execute_process(COMMAND ${CMAKE_COMMAND} ${command} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${example}/fit_line COMMAND_ERROR_IS_FATAL ANY)
