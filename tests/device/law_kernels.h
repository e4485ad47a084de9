#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/cuda_kernel.h"
#include "device/kernel.h"

// Small kernels that a device must run as a host does.
namespace macaw::device {

struct FillArgs {
  uint32_t* values = nullptr;
  size_t count = 0;
  uint32_t factor = 0;
};
inline constexpr Kernel<FillArgs> kFill = {"law.fill"};  // values[i] = factor * i
MACAW_KERNEL void Fill(const FillArgs& args, const Team& team) {
  for (size_t i = team.first(); i < args.count; i += team.stride())
    args.values[i] = args.factor * static_cast<uint32_t>(i);
}

// Adds each block's part of the values up in the block's shared memory, of which it uses all.
struct BlockSumArgs {
  const uint32_t* values = nullptr;
  size_t count = 0;
  uint32_t* sums = nullptr;  // of each block
  uint32_t shared_words = 0;
};
inline constexpr Kernel<BlockSumArgs> kBlockSum = {"law.block_sum"};
MACAW_KERNEL void BlockSum(const BlockSumArgs& args, const Team& team) {
  auto* const shared = reinterpret_cast<uint32_t*>(team.shared);
  for (uint32_t i = team.thread; i < args.shared_words; i += team.threads) shared[i] = 0;
  team.Sync();
  for (size_t i = team.first(); i < args.count; i += team.stride())
    shared[args.shared_words - 1 - team.thread] += args.values[i];
  team.Sync();
  if (team.thread != 0) return;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < args.shared_words; ++i) sum += shared[i];
  args.sums[team.block] = sum;
}

// A product and a sum, which must not become one rounding.
struct TwoRoundingsArgs {
  const double* values = nullptr;
  size_t count = 0;
  double* out = nullptr;
};
inline constexpr Kernel<TwoRoundingsArgs> kTwoRoundings = {"law.two_roundings"};
MACAW_KERNEL void TwoRoundings(const TwoRoundingsArgs& args, const Team& team) {
  for (size_t i = team.first(); i < args.count; i += team.stride())
    args.out[i] = args.values[i] * args.values[i] + -1.0;
}

std::vector<HostKernelEntry> LawHostKernels();
std::vector<CudaKernel> LawCudaKernels();  // none without CUDA

}  // namespace macaw::device
