# apiary/.packaging/conan/conanfile.py - a recipe for Conan 2 that packages the checkout it lies in.
# SPDX-License-Identifier: MIT
import os

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy


class Apiary(ConanFile):
    name = "apiary"
    version = "0.2.0"
    license = "MIT"
    description = "GPU-cluster scheduling algorithms as a header-only C++20 library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"compiled": [True, False]}
    default_options = {"compiled": False}
    generators = "CMakeDeps"

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "include/*", ".packaging/*"):
            copy(self, pattern, src=root, dst=self.export_sources_folder)

    def requirements(self):
        self.requires("abseil/[>=20220623]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["APIARY_COMPILED"] = bool(self.options.compiled)
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables["APIARY_BUILD_" + part] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_id(self):
        if not self.options.compiled:
            self.info.clear()  # headers alone serve every compiler

    def package_info(self):
        # Conan generates the CMake configuration; the one that apiary installs would be found twice.
        self.cpp_info.set_property("cmake_file_name", "apiary")
        needed = ["abseil::absl_function_ref", "abseil::absl_status", "abseil::absl_statusor",
                  "abseil::absl_strings"]
        headers = self.cpp_info.components["headers"]
        headers.set_property("cmake_target_name", "apiary::apiary")
        headers.requires = needed
        headers.libdirs = []
        headers.bindirs = []
        if self.options.compiled:
            library = self.cpp_info.components["library"]
            library.set_property("cmake_target_name", "apiary::compiled")
            library.requires = ["headers"]
            library.libs = ["apiary_compiled"]
            library.defines = ["APIARY_COMPILED"]
