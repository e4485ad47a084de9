#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/vector.h"

namespace macaw {

// What all nodes of a run agree on: the server sends it to each worker at registration, and its
// digest is part of every checkpoint. It holds no path, address or other property of a single node.
// The configuration reader (cli/config) has checked the ranges and names the wrong key; each room
// checks what only it can know.

enum class TaskKind : uint8_t { kClassification = 0, kBinary = 1, kRegression = 2, kNextToken = 3 };
enum class WeightPolicy : uint8_t { kExamples = 0, kUniform = 1, kTokens = 2 };

struct ModelConfig {
  std::string name;                  // a named model of models/spec.h, or "layers"
  std::vector<std::string> layers;   // "conv 32 5 pad 2", ...: the model when name is "layers"
  uint64_t seed = 0;                 // initial weights
  std::vector<int64_t> input_shape;  // one example: {1, 28, 28} or {60}
  // Outputs of a classifier; 1 for binary and regression; the size of the vocabulary for
  // next-token.
  int64_t classes = 0;
  bool bias = true;  // false: the named model "logistic" without its bias
  // How batch-norm statistics are treated. "mean": averaged over clients like parameters; "local":
  // each client keeps its own; "server": they never change.
  std::string buffers = "mean";
  // For a scripted module (name "torchscript"): the hex digest of its file, which each worker
  // compares with its own copy, and its tensors ("parameter fc.weight 10 784", "buffer ...").
  std::string script_digest;
  std::vector<std::string> tensors;
};

// How stored features become model inputs: x' = (x · scale − mean[c]) / std[c] per channel c, then
// the client's own noise, then augmentation (in training only). All of it happens while a batch is
// gathered.
struct TransformConfig {
  double scale = 1.0;        // 1/255 for stored bytes
  std::vector<double> mean;  // per channel, or one value for all; empty: 0
  std::vector<double> std;   // the same; empty: 1
  int64_t pad_crop = 0;      // pad by this many zeros on each side, then crop at a random place
  bool flip = false;         // mirror left-right with probability 1/2
  double client_noise = 0;   // Gaussian noise, level · client rank / clients (NIID-bench)
};

struct Schedule {
  // "constant"; "step": × gamma every `every` rounds; "exponential": × gamma each round;
  // "cosine": from 1 to `floor` over `rounds`. Round 1 has factor 1 (after warm-up).
  std::string kind = "constant";
  double gamma = 1.0;
  uint32_t every = 1;
  uint32_t rounds = 0;
  double floor = 0.0;
  uint32_t warmup_rounds = 0;  // linear from 1/(n+1) to 1 over the first n rounds
};

struct LocalConfig {
  uint32_t epochs = 1;            // passes over the client's rows, if steps is 0
  uint32_t steps = 0;             // > 0: exactly this many steps; rows are repeated as needed
  uint32_t batch_size = 10;       // 0: all rows in one batch
  std::string optimizer = "sgd";  // "sgd", "adam", "adamw"
  double lr = 0.1;
  Schedule lr_schedule;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999;  // adam, adamw: decay rates of the two moments
  double epsilon = 1e-8;              // adam, adamw: added to the root of the second moment
  double weight_decay = 0;        // added to the gradient after the correction (adamw: decoupled)
  double clip_norm = 0;           // > 0: clips the norm of the vector that `clip` names
  std::string clip = "gradient";  // "gradient", before the correction; "corrected", after it
  std::vector<double> class_weights;  // per class; empty: 1
  double label_smoothing = 0;         // [0, 1)
  bool drop_last = false;             // skips a last batch that is not full
  bool shuffle = true;                // false: batches in stored order
  std::string trainer = "auto";       // "auto", "eager", "fused"
};

using ParameterValue = std::variant<bool, int64_t, double, std::string>;

struct AlgorithmConfig {
  std::string name = "fedavg";
  std::map<std::string, ParameterValue>
      parameters;  // complete: defaults filled in by the algorithm's description
};

struct CohortConfig {
  uint64_t size = 0;                 // clients a round
  std::string sampling = "uniform";  // a name of scheduler/cohort.h
  WeightPolicy weight = WeightPolicy::kExamples;
  uint64_t seed = 0;
  // Clients that are too slow to do their whole work, drawn from `seed` in each round
  // (training/api/straggler.h).
  double straggler_fraction = 0;
  std::string straggler_policy = "partial";  // or "drop": they are left out of the cohort
  // Which clients are available, if sampling is "available" (scheduler/availability.h).
  double availability = 0.5;       // probability, (0, 1]
  double availability_swing = 0;   // the part of it that follows the time of day, [0, 1]
  uint32_t availability_day = 24;  // rounds
  // Over-selection: this many times `size` clients are asked, and the `size` that report first are
  // kept (scheduler/over_selection.h). The spreads are those of the clients' emulated durations.
  double over_selection = 1;
  double device_spread = 1, round_spread = 0.2;
};

struct EvaluationConfig {
  uint32_t every = 1;  // rounds; 0: only after the last one. The last round is always evaluated.
  // rows per task; it affects the result's bits, so it never depends on the workers
  uint32_t chunk = 1000;
  bool central = true;   // the central test set
  bool clients = false;  // every client's own test rows
  bool train = false;    // every client's training rows, and the objective over all of them
};

// Two runs with the same profile agree byte for byte. The server refuses a worker with another
// profile.
struct NumericProfile {
  std::string trainer;          // "eager"
  std::string instruction_set;  // "avx2", "avx512", ...: what LibTorch's kernels will use
  std::string libraries;        // "libtorch 2.11.0, glibc 2.36"
  friend bool operator==(const NumericProfile&, const NumericProfile&) = default;
};

struct RunConfig {
  std::string name;
  std::vector<std::string> plugins;  // "NAME VERSION DIGEST" of each; the same on all nodes
  uint64_t seed = 0;                 // the default for sections without a seed of their own
  uint32_t rounds = 1;
  uint64_t clients = 0;         // the population; 0: not known before the workers register
  uint64_t train_clients = 0;   // clients with training rows; 0: all
  uint64_t train_examples = 0;  // over the population
  uint64_t train_tokens = 0;    // the same in tokens, for sequences; 0: the data has none
  DType dtype = DType::kF32;
  TaskKind task = TaskKind::kClassification;
  ModelConfig model;
  TransformConfig transform;
  LocalConfig local;
  AlgorithmConfig algorithm;
  CohortConfig cohort;
  EvaluationConfig evaluation;
  double contribution_bound =
      65536;  // M: a contribution with a larger |value| is refused (aggregation/channel.h)
};

// N in the papers: the number of clients that can train. Clients that are held out or have no rows
// do not count.
inline uint64_t TrainClients(const RunConfig& run) {
  return run.train_clients > 0 ? run.train_clients : run.clients;
}

// Σ w_i over the population, by the run's weight policy.
inline double TotalWeight(const RunConfig& run) {
  switch (run.cohort.weight) {
    case WeightPolicy::kUniform:
      return static_cast<double>(TrainClients(run));
    case WeightPolicy::kTokens:
      return static_cast<double>(run.train_tokens);
    case WeightPolicy::kExamples:
      break;
  }
  return static_cast<double>(run.train_examples);
}

// All settings above that decide the bits of a result, as "section.key" → value: the fingerprint of
// a run. `name` and `rounds` are left out, because a finished run may be continued for more rounds.
std::map<std::string, std::string> Describe(const RunConfig& run);

}  // namespace macaw
