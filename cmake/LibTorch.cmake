# The CPU half of the pinned wheel, as an imported target of our own. The wheel's own package file would drag
# libtorch_cuda into every program; libtorch_cpu alone starts in 0.3 s and needs nothing but two small CUDA
# runtime libraries, which `./dev setup torch` puts beside it.
file(SHA256 ${PROJECT_SOURCE_DIR}/deps.lock lock_digest)
string(SUBSTRING ${lock_digest} 0 12 lock_id)
set(MACAW_LIBTORCH_ROOT "" CACHE PATH "Folder that holds the unpacked wheels (torch/, nvidia/); empty: that of deps.lock in .deps/")
# Not in the cache, so that a new lock is a new folder. The caches of older build folders have that of their lock.
string(FIND "${MACAW_LIBTORCH_ROOT}" ${PROJECT_SOURCE_DIR}/.deps/libtorch- own)
if(NOT MACAW_LIBTORCH_ROOT OR (own EQUAL 0 AND MACAW_LIBTORCH_ROOT MATCHES "/libtorch-[0-9a-f]+$"))
  set(MACAW_LIBTORCH_ROOT ${PROJECT_SOURCE_DIR}/.deps/libtorch-${lock_id})
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/deps.lock)
set(torch_root ${MACAW_LIBTORCH_ROOT}/torch)
set(cuda_lib ${MACAW_LIBTORCH_ROOT}/nvidia/cu13/lib)
if(NOT EXISTS ${torch_root}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch is not at ${torch_root}: run ./dev setup torch")
endif()
# The package of Python says which PyTorch has the same.
set(torch_version "")
foreach(header headeronly/version.h csrc/api/include/torch/version.h)  # before 2.9 the second
  if(EXISTS ${torch_root}/include/torch/${header})
    file(STRINGS ${torch_root}/include/torch/${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    if(numbers)
      string(JOIN "." torch_version ${numbers})
    endif()
  endif()
endforeach()
set(MACAW_LIBTORCH_VERSION ${torch_version})
# All that libmacaw_torch.so loads of it. An installation has them in one folder (training/CMakeLists.txt).
set(MACAW_LIBTORCH_LIBRARIES
  ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so ${torch_root}/lib/libgomp.so.1
  ${cuda_lib}/libcudart.so.13 ${cuda_lib}/libcupti.so.13)

add_library(macaw_torch_cpu INTERFACE)
add_library(macaw::torch_cpu ALIAS macaw_torch_cpu)
target_include_directories(macaw_torch_cpu SYSTEM INTERFACE
  ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
target_compile_definitions(macaw_torch_cpu INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
# CMake gives what is built the run path of the two libraries, and takes it away on installing.
target_link_options(macaw_torch_cpu INTERFACE -Wl,-rpath-link,${cuda_lib} -Wl,--allow-shlib-undefined)
target_link_libraries(macaw_torch_cpu INTERFACE
  -Wl,--no-as-needed ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so -Wl,--as-needed Threads::Threads)
