set(MICA_TARGET aarch64)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
