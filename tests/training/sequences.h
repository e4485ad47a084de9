#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/training/testing.h"

namespace macaw::training {

// Texts that a test keeps: rows of equally many tokens, a label for each (next-token: the token
// behind it), and how many tokens of each are in use (empty: all).
struct Sequences {
  std::vector<std::vector<int32_t>> rows;
  std::vector<int32_t> labels;
  std::vector<int32_t> lengths;
  std::vector<int32_t> tokens;

  data::Rows Rows() {
    tokens.clear();
    for (const auto& row : rows) tokens.insert(tokens.end(), row.begin(), row.end());
    data::Rows view;
    view.block.type = data::FeatureType::kI32;
    view.block.features = reinterpret_cast<const std::byte*>(tokens.data());
    view.block.row_bytes = rows.at(0).size() * sizeof(int32_t);
    view.block.classes = labels.data();
    view.block.lengths = lengths.empty() ? nullptr : lengths.data();
    view.block.count = rows.size();
    return view;
  }
};

inline absl::StatusOr<std::unique_ptr<LocalTrainer>> MakeTrainer(
    const models::ModelSpec& spec, TaskKind task,
    data::FeatureType type = data::FeatureType::kI32) {
  TrainerSetup setup;
  setup.spec = spec;
  setup.task = task;
  setup.feature_type = type;
  setup.dtype = spec.layout->dtype();
  setup.backend = TorchChoice();
  return TorchBackend().MakeTrainer(setup);
}

struct Ran {
  StageOutcome outcome;  // its `end` is gone with the trainer
  FlatVector end;
};

inline Ran RunOne(const models::ModelSpec& spec, TaskKind task, Stage stage,
                  const data::Rows& rows) {
  LocalPlan plan;
  plan.stages = {std::move(stage)};
  const auto trainer = *MakeTrainer(spec, task);
  const StageOutcome outcome = MustRun(*trainer, plan, TaskOf(rows))[0];
  return {outcome, FlatVector::CopyOf(outcome.end, spec.layout)};
}

inline Stage GradientAt(const FlatVector& x) {
  Stage stage = StageFrom(View(x), 0);
  stage.kind = StageKind::kGradient;
  return stage;
}

}  // namespace macaw::training
