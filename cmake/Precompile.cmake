# Headers that nearly every source of a target reads are compiled once for it: the standard library's alone take about a
# second of each source. A source still includes what it uses: with -DMICA_PRECOMPILE=OFF it is compiled without them.
option(MICA_PRECOMPILE "Compile the headers that sources share once for each library" ON)

set(MICA_STANDARD_HEADERS
    <algorithm> <array> <atomic> <bit> <cmath> <complex> <cstdint> <cstring> <functional> <limits> <memory> <mutex>
    <optional> <span> <string> <type_traits> <unordered_map> <utility> <vector>)

# mica_precompile(<target> <header>...): the standard headers above, and those given.
function(mica_precompile target)
  if(NOT MICA_PRECOMPILE)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE ${MICA_STANDARD_HEADERS} ${ARGN})
  # With it g++ names the precompiled header to ccache, which preprocesses sources on its own.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  # g++ 12 sees std::string's inner buffer overrun by the text of a check, with a precompiled header only. It warns still.
  target_compile_options(
    ${target} PRIVATE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${MICA_WERROR}>>:-Wno-error=array-bounds>)
endfunction()
