# CUDA as a language, without LibTorch: the kernels of device/, aggregation/ and training/ for GPUs, and libmacaw_cuda.so. AUTO
# takes it where nvcc is found and compiles. No GPU is needed to build or to test.
set(MACAW_CUDA AUTO CACHE STRING "Build for NVIDIA GPUs: AUTO (where nvcc works), ON or OFF")
set_property(CACHE MACAW_CUDA PROPERTY STRINGS AUTO ON OFF)
# Each of them takes nvcc another 15 s. What a package should have is "release": every GPU since Turing.
set(MACAW_CUDA_ARCHITECTURES developer CACHE STRING
  "GPUs to compile for: developer (A100, H100, and PTX for later ones), release (from T4 to Blackwell), or a list such as 75-real;90")
set(MACAW_HAVE_CUDA OFF)
set(cuda_wanted ${MACAW_CUDA})
if(cuda_wanted STREQUAL "AUTO" AND
    (MACAW_SANITIZE OR MACAW_FUZZ OR CMAKE_CROSSCOMPILING OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
  set(cuda_wanted OFF)  # GPUs have checkers of their own, and nvcc is tried with GCC alone
endif()
if(cuda_wanted)
  # An installed toolkit, else what `./dev setup cuda` has unpacked.
  file(SHA256 ${PROJECT_SOURCE_DIR}/cuda.lock lock_digest)
  string(SUBSTRING ${lock_digest} 0 12 lock_id)
  set(cuda_wheels ${PROJECT_SOURCE_DIR}/.deps/cuda-${lock_id}/nvidia)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda.lock)
  # What an older lock has left in the cache is looked for again, and CMake looks at the compiler anew.
  get_cmake_property(names CACHE_VARIABLES)
  foreach(name IN LISTS names)
    string(FIND "$CACHE{${name}}" ${PROJECT_SOURCE_DIR}/.deps/cuda- own)
    string(FIND "$CACHE{${name}}" ${cuda_wheels}/ present)
    if(own EQUAL 0 AND NOT present EQUAL 0)
      message(STATUS "CUDA: ${name} is of another cuda.lock, and is looked for again")
      unset(${name} CACHE)
      unset(CMAKE_CUDA_COMPILER CACHE)
      file(REMOVE ${CMAKE_PLATFORM_INFO_DIR}/CMakeCUDACompiler.cmake)
    endif()
  endforeach()
  if(DEFINED ENV{CUDACXX})
    set(MACAW_NVCC $ENV{CUDACXX} CACHE FILEPATH "NVIDIA's compiler")  # another one needs a new build folder
  endif()
  find_program(MACAW_NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATHS ${cuda_wheels}/cu13/bin PATH_SUFFIXES bin)
  if(MACAW_NVCC)
    set(ENV{CUDACXX} ${MACAW_NVCC})
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real)  # for CMake's own look at the compiler; see below
    endif()
    include(CheckLanguage)
    check_language(CUDA)  # compiles something, and leaves CMAKE_CUDA_COMPILER empty if that fails
  endif()
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit)
  endif()
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND AND TARGET CUDA::cudart_static)
    set(MACAW_HAVE_CUDA ON)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
      message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} does not know C++20: CUDA must be 12.0 or later")
    endif()
  elseif(MACAW_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MACAW_CUDA is ON, but no nvcc with libcudart_static.a works here: run ./dev setup cuda, or install the CUDA toolkit "
            "(12.0 or later) and put nvcc into PATH, or set CUDACXX, or configure with -DMACAW_CUDA=OFF")
  endif()
endif()
if(NOT MACAW_HAVE_CUDA)
  message(STATUS "CUDA: off")
  return()
endif()
# "-real" is code for these processors and later ones of the same generation (80 runs on 86 and 89); without it, PTX, too, which the
# driver compiles for what comes later, some 10 to 60 s at the first start.
if(MACAW_CUDA_ARCHITECTURES STREQUAL "developer")
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
elseif(NOT MACAW_CUDA_ARCHITECTURES STREQUAL "release")
  set(CMAKE_CUDA_ARCHITECTURES ${MACAW_CUDA_ARCHITECTURES})
elseif(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)  # which knows no Blackwell
else()
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90-real 100-real 120)
endif()
# What the runtime, which is linked statically, asks of the driver.
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
  set(MACAW_CUDA_DRIVER "525 or later")
else()
  set(MACAW_CUDA_DRIVER "580 or later")
endif()
message(STATUS "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

# CMake 3.25 does not know that nvcc takes C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# -fmad=false: as -ffp-contract=off for C++, so that kernels give the bits of their host copies. The last option lets kernels call
# constexpr functions of the standard library (std::bit_cast, std::max).
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CUDA_FLAGS_DEBUG "-O1 -g")
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-fmad=false> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
# What `ptxas -v` says of each kernel: registers, spills, shared memory: cmake -DMACAW_PTXAS_REPORT=ON, then build macaw_cuda.
option(MACAW_PTXAS_REPORT "Have ptxas print what each kernel uses" OFF)
if(MACAW_PTXAS_REPORT)
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>)
endif()

# Only the types of NCCL are used. Its library is opened where a worker has several GPUs (device/cuda/nccl_api.h).
find_path(MACAW_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ${cuda_wheels}/nccl/include)
if(EXISTS ${cuda_wheels}/nccl/lib)
  set(MACAW_NCCL_LIBRARIES ${cuda_wheels}/nccl/lib)  # where the build folder's programs look for it, too
endif()
