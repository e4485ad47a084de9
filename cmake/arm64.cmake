# Builds for arm64 on another processor: GCC's cross compiler, the libraries of a folder with Debian's arm64 packages
# (cmake/arm64_sysroot.sh), and qemu to run what was built (cmake/arm64_run.sh).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

cmake_path(SET root NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../.deps/arm64)
if(NOT EXISTS ${root}/usr/lib/aarch64-linux-gnu)
  message(FATAL_ERROR "the arm64 libraries are not at ${root}: run MACAW_PRESET=arm64 ./dev setup")
endif()
set(CMAKE_SYSROOT ${root})
set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/arm64_run.sh)

# Programs are this machine's (protoc); libraries, headers and packages come from the folder alone.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/aarch64-linux-gnu/pkgconfig:${root}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
