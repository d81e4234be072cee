# Installs the build into a prefix, then configures, builds and runs against it: examples/cpp_project, the GPT of
# examples/cpp, and examples/backend, a backend that knows nothing but what is installed.
# cmake -D BUILD=... -D SOURCE=... -D COMPILER=... -P installed_project.cmake
set(prefix ${BUILD}/installed/prefix)
set(example ${BUILD}/installed/example)
set(training ${BUILD}/installed/training)
set(backend ${BUILD}/installed/backend)
set(options -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Release)
file(REMOVE_RECURSE ${BUILD}/installed)
foreach(
  command
  "--install;${BUILD};--prefix;${prefix}"
  "-S;${SOURCE}/examples/cpp_project;-B;${example};${options}"
  "--build;${example}"
  "-S;${SOURCE}/examples/cpp;-B;${training};${options}"
  "--build;${training};--target;gpt"
  "-S;${SOURCE}/examples/backend;-B;${backend};${options}"
  "--build;${backend}")
  execute_process(COMMAND ${CMAKE_COMMAND} ${command} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${example}/fit_line COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${backend}/try_backend COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${training}/gpt --steps 10 --batch 4 --context 16 --width 16 --layers 1 --tell 10
                COMMAND_ERROR_IS_FATAL ANY)
