#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/cuda_kernel.h"
#include "device/kernel.h"

// How a .cu file makes a launchable kernel of a MACAW_KERNEL function:
//
//   constexpr device::CudaKernel kKernels[] = {
//       device::CudaEntry<AddOneArgs, AddOne>(kAddOne),
//   };
namespace macaw::device {

// What a launch may ask for if the entry does not say otherwise: Launch::threads is at most this.
// It limits a thread to 64 registers. A kernel that wants more registers names fewer threads.
// `least_blocks`: how many blocks of so many threads a processor holds at once, at least; the
// compiler spills registers rather than use more than that allows.
inline constexpr uint32_t kMostThreads = 1024;

template <typename Args, void (*function)(const Args&, const Team&), uint32_t most_threads,
          uint32_t least_blocks>
__global__ void __launch_bounds__(most_threads, least_blocks)
    RunOnTeam(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) unsigned char shared[];
  Team team;
  team.block = blockIdx.x;
  team.blocks = gridDim.x;
  team.thread = threadIdx.x;
  team.threads = blockDim.x;
  team.shared = reinterpret_cast<std::byte*>(shared);
  function(args, team);
}

template <typename Args, void (*function)(const Args&, const Team&),
          uint32_t most_threads = kMostThreads, uint32_t least_blocks = 1>
CudaKernel CudaEntry(const Kernel<Args>& kernel) {
  return {kernel.name, sizeof(Args),
          reinterpret_cast<const void*>(&RunOnTeam<Args, function, most_threads, least_blocks>)};
}

}  // namespace macaw::device
