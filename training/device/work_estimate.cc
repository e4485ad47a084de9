#include "training/device/work_estimate.h"

#include <algorithm>

namespace macaw::training::ondevice {
namespace {

// What a block does in a second while another one shares its processor: a third of what the
// kernel's instructions need on an H100 for the slowest models, and a slow GPU's share of a fast
// one.
constexpr double kWorkOfASecond = 5e9;
constexpr uint64_t kBlocksOfAProcessor = 2;
constexpr uint64_t kElementWork = 10;  // of an element without products, or of a weight's step
constexpr uint64_t kDirections = 3;    // forward, the input's gradient, the weights' gradient
constexpr uint32_t kMost = 1u << 30;   // rows, so that sums of two fit

uint64_t ProductsOf(const Op& op) {
  switch (op.kind) {
    case OpKind::kLinear:
      return uint64_t{op.positions} * op.in_vector.value * op.out_vector.value;
    case OpKind::kConv:
      return uint64_t{op.out.size} * op.in.channels * op.kernel_height * op.kernel_width;
    case OpKind::kLstm:
    case OpKind::kGru:
      return uint64_t{op.positions} * (op.kind == OpKind::kLstm ? 4 : 3) * op.out_vector.value *
             (uint64_t{op.in_vector.value} + op.out_vector.value);
    case OpKind::kAttention:  // scores, and what they weigh
      return uint64_t{2} * op.positions * op.out.size;
    default:
      return 0;
  }
}

uint32_t Rows(double rows) {
  return static_cast<uint32_t>(std::clamp(rows, 1.0, static_cast<double>(kMost)));
}

}  // namespace

uint64_t WorkOfRow(std::span<const Op> ops) {
  uint64_t work = 1;
  for (const Op& op : ops) {
    work +=
        kDirections * ProductsOf(op) + kElementWork * std::max<uint64_t>(op.in.size, op.out.size);
  }
  return work;
}

uint64_t WorkOfPass(const Program& program) { return kElementWork * uint64_t{program.vector_size}; }

LaunchSize SizeOfLaunch(const Program& program, uint64_t row_work, double seconds, uint64_t jobs,
                        uint32_t processors) {
  const uint64_t together = kBlocksOfAProcessor * std::max(processors, 1u);
  const auto waves = static_cast<double>(std::max<uint64_t>((jobs + together - 1) / together, 1));
  const auto row = static_cast<double>(row_work);
  return {.most_rows = Rows(seconds * kWorkOfASecond / waves / row),
          .step_rows = Rows(static_cast<double>(WorkOfPass(program)) / row)};
}

}  // namespace macaw::training::ondevice
