# apiary/.packaging/debian.cmake - the Debian package libapiary-dev: cmake --build BUILD --target package.
# SPDX-License-Identifier: MIT
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME apiary)
set(CPACK_PACKAGE_CONTACT "the apiary authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "GPU-cluster scheduling algorithms (C++20 headers)")
set(CPACK_PACKAGE_DESCRIPTION
"FGD, HiveD, Philly, Gandiva, batch queues and a gang scheduler as a library:
decisions about GPUs for schedulers and simulators that embed it.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_PACKAGE_NAME libapiary-dev)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libabsl-dev (>= 20220623)")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
if(NOT APIARY_COMPILED)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE all)
endif()
include(CPack)
