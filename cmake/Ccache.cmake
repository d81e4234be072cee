# Compile through ccache when it is there. Paths are taken relative to the source root and the working directory is not
# hashed, so that several checkouts of one commit share their objects. ccache keeps what was compiled with a precompiled
# header (cmake/Precompile.cmake) only if it may overlook macros that the header defines and no source mentions, and
# __DATE__ and __TIME__, which no source uses.
find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()
