# What every target of ours is compiled with.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")

# Results are compared byte for byte, so no flag may change arithmetic: no fast-math, no fused multiply-add that
# the source does not ask for, no -march=native.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)

# For the rooms that read what other machines send. Kernels go without: they read what these rooms have checked.
macro(macaw_harden)
  add_compile_options("$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:C,CXX>>:-fstack-protector-strong;-D_FORTIFY_SOURCE=2>")
endmacro()
add_link_options($<$<CONFIG:Release>:LINKER:-z,relro,-z,now>)

find_program(CCACHE ccache)
if(CCACHE)
  # The first setting lets ccache work beside a precompiled header, the others share objects between clones.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE})
endif()
find_program(LLD ld.lld)
if(LLD AND NOT CMAKE_CROSSCOMPILING)  # a cross compiler looks for a linker under its own prefix
  add_link_options(-fuse-ld=lld)
endif()

if(MACAW_SANITIZE)
  string(REPLACE "," ";" sanitizers "${MACAW_SANITIZE}")
  foreach(sanitizer IN LISTS sanitizers)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${sanitizer}>)
    add_link_options(-fsanitize=${sanitizer})
  endforeach()
  add_compile_definitions(MACAW_SANITIZED=1)
endif()

if(MACAW_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "MACAW_FUZZ needs clang: use the preset fuzz, or ./dev fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address)
  add_link_options(-fsanitize=address)
  add_compile_definitions(MACAW_SANITIZED=1)
endif()

# Linked by our own targets only, so that a dependency's headers do not break the build.
add_library(macaw_warnings INTERFACE)
target_compile_options(macaw_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wno-missing-field-initializers;-Werror>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wno-unknown-pragmas;-Werror=all-warnings>")
if(MACAW_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of its own std::regex where AddressSanitizer has changed it.
  target_compile_options(macaw_warnings INTERFACE -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(macaw_warnings INTERFACE -Wthread-safety -Wno-unused-lambda-capture)
endif()
