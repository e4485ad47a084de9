#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/status.h"
#include "models/spec.h"
#include "tests/training/torch_on.h"
#include "training/api/trainer.h"
#include "training/torch/torch_backend.h"

namespace macaw::training {

// Examples that a test keeps. The rows may be stored `shift` bytes past an aligned address.
class Examples {
 public:
  Examples(std::vector<std::vector<double>> rows, std::vector<double> labels, size_t shift = 0)
      : labels_(std::move(labels)),
        targets_(labels_.begin(), labels_.end()),
        classes_(labels_.begin(), labels_.end()),
        width_(rows.at(0).size()),
        shift_(shift),
        bytes_(rows.size() * width_ * sizeof(float) + 64) {
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t k = 0; k < width_; ++k) {
        const float value = static_cast<float>(rows[i][k]);
        std::memcpy(&bytes_.bytes()[shift_ + (i * width_ + k) * sizeof(float)], &value,
                    sizeof(value));
      }
    }
  }

  data::Rows Classes() const {
    data::Rows rows = Block();
    rows.block.classes = classes_.data();
    return rows;
  }
  data::Rows Targets() const {
    data::Rows rows = Block();
    rows.block.targets = targets_.data();
    return rows;
  }

 private:
  data::Rows Block() const {
    data::Rows rows;
    rows.block.features = bytes_.bytes().data() + shift_;
    rows.block.row_bytes = width_ * sizeof(float);
    rows.block.count = labels_.size();
    return rows;
  }

  std::vector<double> labels_;
  std::vector<float> targets_;
  std::vector<int32_t> classes_;
  size_t width_;
  size_t shift_;
  AlignedBuffer bytes_;
};

// `count` random rows of `width` standard normal features, labelled with classes in turn.
inline Examples RandomExamples(size_t count, size_t width, size_t classes, uint64_t seed,
                               size_t shift = 0) {
  RandomStream stream({.seed = seed});
  std::vector<std::vector<double>> rows(count, std::vector<double>(width));
  std::vector<double> labels(count);
  for (size_t i = 0; i < count; ++i) {
    labels[i] = static_cast<double>(i % classes);
    for (double& x : rows[i]) x = stream.Normal() + (i % classes == 0 ? 0.5 : 0.0);
  }
  return {std::move(rows), std::move(labels), shift};
}

inline models::ModelSpec SpecOf(std::vector<std::string> layers, std::vector<int64_t> input,
                                int64_t classes, DType dtype,
                                std::vector<std::string> adapters = {}) {
  ModelConfig config;
  config.name = "layers";
  config.layers = std::move(layers);
  config.input_shape = std::move(input);
  config.classes = classes;
  config.adapters = std::move(adapters);
  return *models::BuildSpec(config, dtype);
}

inline std::unique_ptr<LocalTrainer> TrainerOf(const models::ModelSpec& spec, TaskKind task) {
  TrainerSetup setup;
  setup.spec = spec;
  setup.task = task;
  setup.dtype = spec.layout->dtype();
  setup.backend = TorchChoice();
  absl::StatusOr<std::unique_ptr<LocalTrainer>> trainer = TorchBackend().MakeTrainer(setup);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return *std::move(trainer);
}

inline ClientTask TaskOf(const data::Rows& train) {
  ClientTask task;
  task.seed = 11;
  task.round = Round(3);
  task.client = ClientId(7);
  task.train = train;
  return task;
}

// A train stage of full batches in stored order; tests change what they are about.
inline Stage StageFrom(Point start, double lr) {
  Stage stage;
  stage.start = start;
  stage.local.lr = lr;
  stage.local.batch_size = 0;
  stage.local.shuffle = false;
  return stage;
}

inline ConstVectorView View(const FlatVector& vector) { return vector.view(); }

inline FlatVector VectorOf(const models::ModelSpec& spec,
                           const std::vector<std::vector<double>>& tensors) {
  FlatVector vector(spec.layout);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const LayoutEntry& entry = spec.layout->entries()[i];
    EXPECT_EQ(entry.size, tensors[i].size());
    for (size_t k = 0; k < tensors[i].size(); ++k) {
      vector.As<double>()[entry.offset + k] = tensors[i][k];
    }
  }
  return vector;
}

// The numbers of one tensor of an f64 vector.
inline std::vector<double> TensorOf(ConstVectorView vector, size_t entry) {
  const LayoutEntry& e = vector.layout->entries()[entry];
  const auto values = vector.As<double>().subspan(e.offset, e.size);
  return {values.begin(), values.end()};
}

inline std::vector<StageOutcome> MustRun(LocalTrainer& trainer, const LocalPlan& plan,
                                         const ClientTask& task) {
  absl::StatusOr<std::vector<StageOutcome>> outcomes = trainer.Run(plan, task);
  EXPECT_TRUE(outcomes.ok()) << outcomes.status();
  return outcomes.ok() ? *std::move(outcomes) : std::vector<StageOutcome>(plan.stages.size());
}

// The same stages, of which all but the first `count` are added while the plan runs.
inline LocalPlan AddedLater(const LocalPlan& plan, size_t count) {
  LocalPlan later;
  later.stages.assign(plan.stages.begin(), plan.stages.begin() + static_cast<ptrdiff_t>(count));
  later.more =
      [plan](std::span<const StageOutcome> outcomes) -> absl::StatusOr<std::vector<Stage>> {
    if (outcomes.size() == plan.stages.size()) return std::vector<Stage>();
    Stage next = plan.stages[outcomes.size()];
    const auto* end = std::get_if<StageEnd>(&next.start);
    if (end != nullptr) {  // a view is as good as the name
      MACAW_RETURN_IF_ERROR(outcomes[end->stage].end.Fetch());
      next.start = outcomes[end->stage].end;
    }
    return std::vector<Stage>{next};
  };
  return later;
}

// Mean squared error of one linear unit t ≈ w·x + b, by hand: two weights and a bias.
struct HandLine {
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;

  std::vector<double> Gradient(const std::vector<double>& w, size_t begin, size_t end) const {
    std::vector<double> g(3);
    for (size_t i = begin; i < end; ++i) {
      const double error = w[0] * rows[i][0] + w[1] * rows[i][1] + w[2] - targets[i];
      g[0] += error * rows[i][0];
      g[1] += error * rows[i][1];
      g[2] += error;
    }
    for (double& value : g) value *= 2.0 / static_cast<double>(end - begin);
    return g;
  }
  std::vector<double> Gradient(const std::vector<double>& w) const {
    return Gradient(w, 0, rows.size());
  }
  double Loss(const std::vector<double>& w) const {
    double sum = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const double error = w[0] * rows[i][0] + w[1] * rows[i][1] + w[2] - targets[i];
      sum += error * error;
    }
    return sum / static_cast<double>(rows.size());
  }
  Examples Stored() const { return {rows, targets}; }
  models::ModelSpec Spec() const { return SpecOf({"linear 1"}, {2}, 1, DType::kF64); }
};

// Five rows whose numbers a float holds exactly.
inline HandLine Line() {
  return {{{1, 0.5}, {-2, 1}, {0.25, 3}, {1.5, -1}, {-0.5, -0.75}}, {2, -1, 0.5, 3, -2}};
}

inline FlatVector PointOf(const models::ModelSpec& spec, const std::vector<double>& w) {
  return VectorOf(spec, {{w[0], w[1]}, {w[2]}});
}

inline void ExpectPoint(ConstVectorView actual, const std::vector<double>& w,
                        double tolerance = 1e-14) {
  EXPECT_NEAR(TensorOf(actual, 0)[0], w[0], tolerance);
  EXPECT_NEAR(TensorOf(actual, 0)[1], w[1], tolerance);
  EXPECT_NEAR(TensorOf(actual, 1)[0], w[2], tolerance);
}

// ‖a − b‖ / ‖b − start‖ of float32: the difference relative to what was learned. Where nothing was,
// 0 if they are the same and else 1.
inline double ErrorOf(ConstVectorView a, ConstVectorView b, ConstVectorView start) {
  const auto x = a.As<float>(), y = b.As<float>(), z = start.As<float>();
  double error = 0, change = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i]) - y[i], 2);
    change += std::pow(static_cast<double>(y[i]) - z[i], 2);
  }
  return change == 0 ? (error == 0 ? 0 : 1) : std::sqrt(error / change);
}

}  // namespace macaw::training
