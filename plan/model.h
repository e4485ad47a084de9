#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/settings/section.h"

namespace macaw {

struct ModelConfig {
  // A named model of models/spec.h, "layers", "torchscript", or "program": only a program of the
  // owner's knows it.
  std::string name;
  std::vector<std::string> layers;   // "conv 32 5 pad 2", ...: the model when name is "layers"
  uint64_t seed = 0;                 // initial weights
  std::vector<int64_t> input_shape;  // one example: {1, 28, 28} or {60}
  // Outputs of a classifier; 1 for binary and regression; the size of the vocabulary for
  // next-token; the numbers of an example for reconstruction. 0: as the data says.
  int64_t classes = 0;
  bool bias = true;  // false: the named model "logistic" without its bias
  // Globs on names of tensors that nobody trains and no client sends: {"0.*"}.
  std::vector<std::string> frozen;
  // Low-rank adapters of linear layers: {"lora 8 0.*"} (models/adapters.h). With them, tensors that
  // are neither adapters nor named in `trained` are frozen, too.
  std::vector<std::string> adapters;
  // Globs on names of tensors: with adapters what is trained beside them, else what is trained.
  std::vector<std::string> trained;
  // How batch-norm statistics are treated. "mean": averaged over clients like parameters; "local":
  // each client keeps its own; "server": they never change.
  std::string buffers = "mean";
  // For a scripted module (name "torchscript"): the hex digest of its file, which each worker
  // compares with its own copy, and its tensors ("parameter fc.weight 10 784", "buffer ..."). For
  // a program's model ("program"): the tensors alone.
  std::string script_digest;
  std::vector<std::string> tensors;

  // The tensors that no client trains, as one list of globs (core/glob.h): what follows from
  // `adapters` and `trained`, then `frozen`. Empty: every tensor is trained.
  std::vector<std::string> FrozenGlobs() const;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// The keys of [model] that all nodes agree on.
settings::Section<ModelConfig> ModelSection();

}  // namespace macaw
