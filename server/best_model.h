#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/ids.h"
#include "server/split_model.h"

namespace macaw::server {

// The best models of a run with run.stop.patience. Each is written with the checkpoint that follows
// it, as checkpoints/best-NNNNNNNN.safetensors, so that a run which goes on from a checkpoint has
// the model that was the best by then. At the end the best one becomes model.best.safetensors.
//
// The last round of a run is evaluated, too, where it is off the grid of evaluation.every. If it is
// the best, its model is a file of its own, checkpoints/end-NNNNNNNN.safetensors: a run that is
// resumed to more rounds does not count it, and needs the best one on the grid. One thread (the
// writer's).
class BestModels {
 public:
  // Removes what rounds after `completed` have left: they are done again.
  BestModels(std::string run_dir, Round completed);

  // A new best. It replaces one that is not written yet, but an `off_grid` one none on the grid. Of
  // a model with parts the file has what is trained, until it is published.
  void Hold(Round round, KeptModel model, bool off_grid = false);
  absl::Status WriteHeld();
  // Removes the models that no checkpoint from `oldest` on needs.
  void Prune(Round oldest) const;
  // Makes model.best.safetensors of the model of this round, and returns the digest of its values.
  // nullopt, and no such file: the model is not there (its round was done without a patience).
  // `split`: of the run's model, or null.
  absl::StatusOr<std::optional<Digest>> Publish(Round round, const SplitModel* split) const;

 private:
  struct Held {
    Round round{};
    KeptModel model;
  };
  std::string FileOf(Round round, bool off_grid) const;
  absl::Status Write(const Held& held, bool off_grid) const;

  std::string run_dir_;
  std::optional<Held> held_, held_off_grid_;
};

}  // namespace macaw::server
