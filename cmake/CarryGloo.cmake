# Puts Gloo into a wheel, so that programs on several hosts need no package of the system. A script, run at the install:
#   cmake -DGLOO=libgloo.so -DTO=folder -DENGINE=libmica_gloo.so -DPATCHELF=patchelf -DCC=c++ -P CarryGloo.cmake
#
# Debian's Gloo wants libibverbs and libhiredis for transports and stores that Mica does not use. The wheel carries
# neither: a library of our own has their names, and ends the process that calls one. It has a file name of its own too,
# since a process that loads the real libibverbs later, as NCCL does, would otherwise be given this one.
get_filename_component(library ${GLOO} REALPATH)
set(made ${TO}/libgloo_mica.so)
set(unused ${TO}/libgloo_unused.so)
file(MAKE_DIRECTORY ${TO})
configure_file(${library} ${made} COPYONLY)

execute_process(COMMAND nm -D --undefined-only ${library} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "U (ibv_|redis|freeReply)[A-Za-z0-9_]+(@[A-Za-z0-9_.]+)?" symbols "${symbols}")
set(source "#include <cstdlib>\nextern \"C\" {\n")
set(versions "")
foreach(symbol ${symbols})
  string(REGEX REPLACE "^U ([A-Za-z0-9_]+)@?(.*)$" "\\1;\\2" parts "${symbol}")
  list(GET parts 0 name)
  list(GET parts 1 version)
  string(APPEND source "__attribute__((visibility(\"default\"))) void ${name}() { std::abort(); }\n")
  if(version)
    list(APPEND versions ${version})
    list(APPEND names_of_${version} ${name})
  endif()
endforeach()
file(WRITE ${TO}/unused.cpp "${source}}\n")
list(REMOVE_DUPLICATES versions)
set(script "")
foreach(version ${versions})
  string(REPLACE ";" "; " names "${names_of_${version}}")
  string(APPEND script "${version} { global: ${names}; };\n")
endforeach()
file(WRITE ${TO}/unused.map "${script}")
execute_process(
  COMMAND ${CC} -shared -fPIC -O2 -Wl,--version-script=${TO}/unused.map -Wl,-soname,libgloo_unused.so -o ${unused}
          ${TO}/unused.cpp COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${TO}/unused.cpp ${TO}/unused.map)

execute_process(COMMAND ${PATCHELF} --print-needed ${made} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "lib(ibverbs|hiredis)[^\n]*" needed "${needed}")
set(replace "")
foreach(each ${needed})
  list(APPEND replace --replace-needed ${each} libgloo_unused.so)
endforeach()
execute_process(COMMAND ${PATCHELF} ${replace} --set-soname libgloo_mica.so --set-rpath $ORIGIN ${made}
                        COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ldd -r ${made} OUTPUT_VARIABLE missing ERROR_VARIABLE missing)
if(missing MATCHES "(undefined symbol|not found)[^\n]*")
  message(FATAL_ERROR "Gloo cannot be carried: ${CMAKE_MATCH_0}")
endif()
# Who was linked against the system's name asks for this file.
if(ENGINE)
  execute_process(COMMAND ${PATCHELF} --print-needed ${ENGINE} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "libgloo[^\n]*" own "${needed}")
  execute_process(COMMAND ${PATCHELF} --replace-needed ${own} libgloo_mica.so ${ENGINE} COMMAND_ERROR_IS_FATAL ANY)
endif()
if(EXISTS /usr/share/doc/libgloo0/copyright)
  configure_file(/usr/share/doc/libgloo0/copyright ${TO}/libgloo_mica.LICENSE COPYONLY)
endif()
