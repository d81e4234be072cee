# What the toolchain files of both architectures share. MICA_TARGET is set by them; MICA_SYSROOT, the folder that
# scripts/install_cross_tools fills, comes from the command line.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${MICA_TARGET})
set(CMAKE_CXX_COMPILER ${MICA_TARGET}-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${MICA_TARGET}-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MICA_SYSROOT)

# Programs are this machine's; libraries, packages and headers are the target's. Its folder of headers comes after the
# compiler's own, which belong to the C library that it links with.
set(CMAKE_FIND_ROOT_PATH ${MICA_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CXX_FLAGS_INIT "-idirafter ${MICA_SYSROOT}/usr/include")
# Programs find their LAPACK where scripts/cross_python has Python find it.
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-${MICA_TARGET}-static -cpu max -L ${MICA_SYSROOT} -E
    LD_LIBRARY_PATH=/usr/lib/${MICA_TARGET}-linux-gnu/openblas-pthread)

file(GLOB MICA_PYTHON_HEADERS ${MICA_SYSROOT}/usr/include/python3.*)
string(REGEX MATCH "python3\\.([0-9]+)$" MICA_PYTHON_HEADERS_NAME "${MICA_PYTHON_HEADERS}")
set(Python_INCLUDE_DIR ${MICA_PYTHON_HEADERS})
set(MICA_TARGET_SOABI cpython-3${CMAKE_MATCH_1}-${MICA_TARGET}-linux-gnu)
