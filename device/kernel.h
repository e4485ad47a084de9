#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// What a kernel is written with. A kernel is one function, compiled by the host's compiler and,
// where nvcc exists, by nvcc:
//
//   MACAW_KERNEL void AddOne(const AddOneArgs& args, const device::Team& team) {
//     for (size_t i = team.first(); i < args.count; i += team.stride()) args.values[i] += 1;
//   }
//
// The two compilations give the same bits if the function keeps to four rules. (1) Every element is
// computed by one thread, in an order that does not depend on the number of threads. (2) A product
// and a sum are fused where the source says Fma, and nowhere else (-ffp-contract=off, -fmad=false).
// (3) exp, log and the like come from device/math.h, because each library has its own. (4) Nothing
// is added atomically. The tests run kernels on the host with teams of several sizes
// (testing/fake_device.h) and compare bits.
#if defined(__CUDACC__)
#define MACAW_KERNEL __host__ __device__ inline
#else
#define MACAW_KERNEL inline
#endif

namespace macaw::device {

// Waits for all threads of a team; on the host. A team of one needs none.
class Barrier {
 public:
  virtual ~Barrier() = default;
  virtual void Wait() = 0;
};

// The threads that run one block of a kernel together. All see the same memory; what one of them
// wrote before Sync, all of them see behind it.
struct Team {
  uint32_t block = 0;   // which block this is
  uint32_t blocks = 1;  // of this launch
  uint32_t thread = 0;  // which thread of the block
  uint32_t threads = 1;
  // Of the block: Launch::shared_bytes, 16-byte aligned, undefined at first.
  std::byte* shared = nullptr;
  Barrier* barrier = nullptr;  // the host's; null for one thread

  // A loop over elements by the whole launch begins at first() and goes on by stride().
  MACAW_KERNEL size_t first() const { return static_cast<size_t>(block) * threads + thread; }
  MACAW_KERNEL size_t stride() const { return static_cast<size_t>(blocks) * threads; }

  // Every thread of the block must come here, or none.
  MACAW_KERNEL void Sync() const {
#if defined(__CUDA_ARCH__)
    __syncthreads();
#else
    if (barrier != nullptr) barrier->Wait();
#endif
  }
};

// How many threads run a kernel. The bits of its results do not depend on it.
struct Launch {
  uint32_t blocks = 1;
  uint32_t threads = 1;       // of a block, at most 1024
  uint32_t shared_bytes = 0;  // of a block
};

// The name of a kernel and the type of its arguments: a trivially copyable struct of at most 4 kB.
// Pointers in it are addresses on the device.
template <typename Args>
struct Kernel {
  const char* name;
};

// What the host runs for one thread of a team.
using HostKernel = void (*)(const void* args, const Team& team);

struct HostKernelEntry {
  const char* name;
  HostKernel run;
};

// HostEntry<AddOneArgs, AddOne>(kAddOne): the line of a kernel in a list of HostKernelEntry.
template <typename Args, void (*function)(const Args&, const Team&)>
constexpr HostKernelEntry HostEntry(const Kernel<Args>& kernel) {
  return {kernel.name, [](const void* args, const Team& team) {
            function(*static_cast<const Args*>(args), team);
          }};
}

}  // namespace macaw::device
