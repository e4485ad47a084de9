#include "training/device/program.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "training/device/program_builder.h"
#include "training/device/work_estimate.h"

namespace macaw::training::ondevice {
namespace {

// Floats of a pass's activations and their gradients (512 MiB); of a batch's, where it has to be
// one pass (4 GiB).
constexpr uint64_t kMostPassFloats = uint64_t{1} << 27, kMostBatchFloats = uint64_t{1} << 30;

}  // namespace

absl::StatusOr<CompiledModel> CompiledModel::Compile(const models::ModelSpec& spec,
                                                     uint32_t batch) {
  if (spec.is_script())
    return absl::UnimplementedError("the device trainer does not take scripted modules");
  for (const models::Layer& layer : spec.layers) {
    if (std::holds_alternative<models::Scale>(layer))
      return absl::UnimplementedError("the device trainer does not take slices of a model");
  }
  if (spec.layout->size() >= uint64_t{1} << 31)
    return absl::UnimplementedError("the device trainer does not take models of this size");
  ProgramBuilder builder(spec, batch);
  MACAW_RETURN_IF_ERROR(builder.Build());
  CompiledModel model;
  model.ops = builder.Ops();
  model.taps = builder.taps();
  model.row_work = WorkOfRow(model.ops);
  const std::vector<LayoutEntry>& entries = spec.layout->entries();
  for (const LayoutEntry& entry : entries) {
    model.tensors.push_back({.offset = static_cast<uint32_t>(entry.offset),
                             .size = static_cast<uint32_t>(entry.size),
                             .buffer = entry.group == Group::kBuffer ? 1u : 0u});
  }
  model.has_dropout = builder.has_dropout();
  model.keeps_gradients = builder.has_embedding();
  model.takes_whole_batches = spec.has_buffers();
  Program& program = model.program;
  program.op_count = static_cast<uint32_t>(model.ops.size());
  program.tensor_count = static_cast<uint32_t>(model.tensors.size());
  program.vector_size = static_cast<uint32_t>(spec.layout->size());
  program.activation_size = static_cast<uint32_t>(builder.activations());
  program.gradient_size = static_cast<uint32_t>(builder.gradients());
  program.outputs = static_cast<uint32_t>(spec.outputs);
  program.positions = static_cast<uint32_t>(std::max<int64_t>(1, spec.positions));
  program.moves_buffers = spec.move_buffers ? 1 : 0;
  program.tokens = spec.takes_tokens() ? 1 : 0;
  // Of the loss, for each position: three numbers, the partition, and a power for each output.
  program.scratch_size = static_cast<uint32_t>(std::max<uint64_t>(
      builder.scratch(), uint64_t{program.positions} * (uint64_t{program.outputs} + 4)));
  program.scratch_least = static_cast<uint32_t>(builder.scratch_least());
  program.input = builder.input();
  program.logits = builder.output();
  program.classes = Divisor(program.outputs);
  const uint64_t floats =
      builder.activations() + builder.gradients() + 2 * uint64_t{program.scratch_size};
  model.pass_rows =
      static_cast<uint32_t>(std::clamp<uint64_t>(kMostPassFloats / floats, 1, kPassRows));
  model.batch_rows = static_cast<uint32_t>(std::max<uint64_t>(kMostBatchFloats / floats, 1));
  return model;
}

uint32_t CompiledModel::Lowest(const std::vector<bool>* trainable) const {
  const auto trains = [&](const Op& op) {
    for (uint32_t tensor = op.weight; tensor < op.weight + op.trained; ++tensor) {
      if (trainable == nullptr || (*trainable)[tensor]) return true;
    }
    return false;
  };
  return static_cast<uint32_t>(std::ranges::find_if(ops, trains) - ops.begin());
}

}  // namespace macaw::training::ondevice
