# apiary/.packaging/vcpkg/apiary/portfile.cmake - builds the checkout that this port lies in.
# SPDX-License-Identifier: MIT
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES compiled APIARY_COMPILED)
if("compiled" IN_LIST FEATURES)
  set(config lib/cmake/apiary)
else()
  set(config share/cmake/apiary)
  set(VCPKG_BUILD_TYPE release)  # headers are the same in a debug build
endif()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DAPIARY_BUILD_TESTS=OFF -DAPIARY_BUILD_EXAMPLES=OFF -DAPIARY_BUILD_BENCHMARKS=OFF
          ${features})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME apiary CONFIG_PATH ${config})
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
