#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/shared_memory.h"
#include "data/gather.h"
#include "training/api/trainer.h"
#include "training/objective.h"

namespace macaw::training::process {

// The rows of one question in a memory file, which the owner's program maps, too
// (workers.give_rows): features and labels as the run has them, normalised and with the client's
// own noise, and room for the model's outputs. The file grows to the largest question. One thread
// at a time.
class SharedRows {
 public:
  // Where a question's rows lie in the file, in bytes.
  struct Place {
    uint64_t rows = 0;
    uint64_t bytes = 0;               // of the file, which the program maps again when it has grown
    uint64_t features = 0;            // [rows, input_shape]: int32 tokens, or of the run's dtype
    uint64_t labels = 0;              // [rows]: int64 classes, or targets of the run's dtype
    std::optional<uint64_t> lengths;  // [rows] int32: positions in use; none: all are
    uint64_t outputs = 0;  // [rows, outputs] or [rows, positions, outputs], of the run's dtype
  };

  static absl::StatusOr<std::shared_ptr<SharedRows>> Make(const TrainerSetup& setup);

  int file() const { return memory_->file(); }  // closes on exec
  bool tokens() const { return tokens_; }
  bool targets() const { return targets_; }

  // Writes rows begin … end−1 and makes room for their outputs. An error says that the rows are
  // only declared, or that there is no memory.
  absl::StatusOr<Place> Put(const data::Rows& rows, uint64_t begin, uint64_t end);

  // Adds to `sums` what the objective makes of the outputs that lie in the place, whose rows are
  // those of the last Put.
  absl::Status Rate(const Place& place, const Objective& objective, std::span<double> sums);

 private:
  SharedRows(const TrainerSetup& setup, std::unique_ptr<SharedMemory> memory);
  template <typename T>
  T* At(uint64_t begin) const {
    return reinterpret_cast<T*>(memory_->data() + begin);
  }

  const data::BatchGather gather_;
  const DType dtype_;
  const TaskKind task_;
  const uint64_t outputs_, positions_;  // positions: of a next-token task, else 1
  const bool tokens_, targets_;

  const std::unique_ptr<SharedMemory> memory_;
  std::vector<uint32_t> chosen_;
  std::vector<int64_t> classes_;  // of each position
};

}  // namespace macaw::training::process
