#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/buffer.h"
#include "core/vector.h"
#include "training/api/stage.h"
#include "training/api/trainer.h"

namespace macaw::bench {

// One epoch of SGD at 0.01. torch_steps.py has the same jobs; its test compares the two lists.
struct Job {
  const char* name;
  const char* model;
  std::vector<std::string> layers;  // where the model is "layers"
  std::vector<int64_t> input;
  uint32_t rows, batch;
  size_t most_clients = 1024;  // at once; fewer where a step is long
  bool shuffle = true;
};

std::vector<Job> Jobs();

// Clients of one job. Image rows are bytes, as data sets store them.
class Clients {
 public:
  static constexpr size_t kDifferent =
      64;  // clients with rows of their own; the others share these

  // Client i has rows[i] rows, at most job.rows.
  Clients(const Job& job, const std::vector<uint32_t>& rows);

  const training::TrainerSetup& setup() const { return setup_; }
  ConstVectorView start() const { return start_.view(); }
  const training::LocalPlan& plan() const { return plan_; }
  const training::ClientTask& task(size_t client) const { return tasks_[client]; }

  // Trains the first `count` clients; returns their steps.
  absl::StatusOr<uint64_t> Train(training::LocalTrainer& trainer, size_t count) const;

 private:
  training::TrainerSetup setup_;
  AlignedBuffer features_;
  std::vector<int32_t> labels_;
  FlatVector start_;
  training::LocalPlan plan_;
  std::vector<training::ClientTask> tasks_;
};

}  // namespace macaw::bench
