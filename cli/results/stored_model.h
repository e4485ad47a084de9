#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/safetensors.h"

namespace macaw::cli {

// A model as files have it. Views are valid as long as `storage`.
struct StoredModel {
  std::string file;  // with the model, or with what is trained of it
  std::string run;   // the run's folder; empty: the file is in none
  std::vector<std::shared_ptr<const SafetensorsFile>> storage;
  std::map<std::string, TensorRef> tensors;
  std::set<std::string> frozen;  // names of those that the run did not train

  uint64_t bytes() const;
};

// The tensors of the model in a checkpoint, which holds vectors (server/checkpoint.h); without the
// frozen ones, which are in base.safetensors of the run's folder, unless release 0.1.0 wrote it.
// Empty: its rule has no common model, or it is another file. An error: its vector has a dtype that
// no model has.
absl::StatusOr<std::map<std::string, TensorRef>> TensorsOfCheckpoint(const SafetensorsFile& file);

// The newest model of a run's folder, or the model of a file: a model's, a checkpoint, or what a
// run has trained (trained.safetensors). Frozen tensors that the file lacks are those of `base`; if
// that is empty, of base.safetensors in the run's folder, or beside a file that is in none. A file
// that lacks nothing gets no tensors of another one, unless `base` names it. An error says what is
// missing, or that the base is not the one with which the file was trained.
absl::StatusOr<StoredModel> OpenStoredModel(const std::string& path, const std::string& base);

}  // namespace macaw::cli
