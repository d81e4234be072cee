# `cmake --install` serves find_package(mica). In a wheel the prefix is the package itself: the extension lies in it, the
# library in lib/, headers in include/. Highway is in the code that it made: no library of its own is loaded.
include(CMakePackageConfigHelpers)

if(SKBUILD)
  set(CMAKE_INSTALL_LIBDIR lib)
  install(TARGETS mica_extension mica_lab mica_distributed LIBRARY DESTINATION .)
  if(TARGET mica_gloo)
    install(TARGETS mica_gloo LIBRARY DESTINATION .)
    find_program(MICA_PATCHELF patchelf)
    if(MICA_PATCHELF)
      install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DGLOO=${MICA_GLOO_LIBRARY}\"
          \"-DTO=\${CMAKE_INSTALL_PREFIX}/lib\" \"-DENGINE=\${CMAKE_INSTALL_PREFIX}/libmica_gloo.so\"
          \"-DPATCHELF=${MICA_PATCHELF}\" \"-DCC=${CMAKE_CXX_COMPILER}\"
          -P \"${PROJECT_SOURCE_DIR}/cmake/CarryGloo.cmake\" COMMAND_ERROR_IS_FATAL ANY)")
    else()
      message(STATUS "There is no patchelf: the wheel has no Gloo, which is looked up on the user's machine")
    endif()
  endif()
  install(DIRECTORY ${MICA_GENERATED_DIR}/package/ DESTINATION . PATTERN "__pycache__" EXCLUDE)
endif()

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/mica)
install(TARGETS mica mica_distributions mica_program EXPORT mica-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/mica DESTINATION include FILES_MATCHING PATTERN "*.h")
install(DIRECTORY torch_headers DESTINATION include FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${MICA_GENERATED_DIR}/include/mica DESTINATION include FILES_MATCHING PATTERN "*.h" PATTERN "*.inc")
install(EXPORT mica-targets NAMESPACE mica:: DESTINATION ${config_dir})
configure_package_config_file(cmake/mica-config.cmake.in ${PROJECT_BINARY_DIR}/mica-config.cmake
                              INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/mica-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/mica-config.cmake ${PROJECT_BINARY_DIR}/mica-config-version.cmake
        DESTINATION ${config_dir})
