#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/vector.h"

namespace macaw {

// What every node of a run agrees on: the server sends it to each worker at registration and its
// digest is part of every checkpoint. It never holds a path, an address or anything else of one
// node. Plain values; the reader (cli/config) has validated ranges and named the offending key,
// rooms check what only they can know.

enum class TaskKind : uint8_t { kClassification = 0, kBinary = 1, kRegression = 2, kNextToken = 3 };
enum class WeightPolicy : uint8_t { kExamples = 0, kUniform = 1, kTokens = 2 };

struct ModelConfig {
  std::string name;                  // a named model of models/spec.h, or "layers"
  std::vector<std::string> layers;   // "conv 32 5 pad 2", ...: the model when name is "layers"
  uint64_t seed = 0;                 // initial weights
  std::vector<int64_t> input_shape;  // one example: {1, 28, 28} or {60}
  int64_t classes = 0;               // outputs of a classifier; 1 for binary and regression;
                                     // next-token: of a position, the size of the vocabulary
  bool bias = true;                  // false: the named model "logistic" without its bias
  // What becomes of batch-norm statistics: "mean" (aggregated like parameters), "local" (each
  // client's own), "server" (nobody moves them).
  std::string buffers = "mean";
  // A scripted module (name "torchscript"): the hex digest of its file, which each worker checks
  // its own copy against, and its tensors ("parameter fc.weight 10 784", "buffer ...").
  std::string script_digest;
  std::vector<std::string> tensors;
};

// How stored features become model inputs, x' = (x · scale − mean[c]) / std[c] per channel c, then
// the client's own noise, then augmentation (training only), all of it in the gather of a batch.
struct TransformConfig {
  double scale = 1.0;        // 1/255 for stored bytes
  std::vector<double> mean;  // per channel, or one for all; empty: 0
  std::vector<double> std;   // likewise; empty: 1
  int64_t pad_crop = 0;      // pad by this many zeros, crop back at a random place
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
  uint32_t epochs = 1;            // passes over the client's rows, when steps == 0
  uint32_t steps = 0;             // > 0: exactly this many steps, rows repeated as needed
  uint32_t batch_size = 10;       // 0: all rows in one batch
  std::string optimizer = "sgd";  // "sgd", "adam", "adamw"
  double lr = 0.1;
  Schedule lr_schedule;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999;  // adam, adamw: decay of the two moments
  double epsilon = 1e-8;              // adam, adamw: added to the root of the second
  double weight_decay = 0;            // added to the gradient, after the correction (adamw: apart)
  double clip_norm = 0;               // > 0: clips the norm of what `clip` names
  std::string clip = "gradient";      // "gradient", before the correction; "corrected", after it
  std::vector<double> class_weights;  // per class; empty: 1
  double label_smoothing = 0;         // [0, 1)
  bool drop_last = false;             // leaves out a last batch that is not full
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
  // Clients too slow for their whole work, drawn by `seed` each round (training/api/straggler.h).
  double straggler_fraction = 0;
  std::string straggler_policy = "partial";  // or "drop": they are left out of the cohort
  // Who is there, where sampling is "available" (scheduler/availability.h).
  double availability = 0.5;       // probability, (0, 1]
  double availability_swing = 0;   // part of it that follows the day, [0, 1]
  uint32_t availability_day = 24;  // rounds
  // This many times `size` are asked and the `size` that report first are kept
  // (scheduler/over_selection.h); the spreads of their emulated durations.
  double over_selection = 1;
  double device_spread = 1, round_spread = 0.2;
};

struct EvaluationConfig {
  uint32_t every = 1;     // rounds; 0: only after the last. The last round is always evaluated.
  uint32_t chunk = 1000;  // rows a task; part of the result's bits, never a function of the workers
  bool central = true;    // the central test set
  bool clients = false;   // every client's own test rows
  bool train = false;     // every client's training rows, and the objective over all of them
};

// Two runs on one profile agree byte for byte; the server refuses a worker whose profile differs.
struct NumericProfile {
  std::string trainer;          // "eager"
  std::string instruction_set;  // "avx2", "avx512", ...: what LibTorch's kernels will choose
  std::string libraries;        // "libtorch 2.11.0, glibc 2.36"
  friend bool operator==(const NumericProfile&, const NumericProfile&) = default;
};

struct RunConfig {
  std::string name;
  std::vector<std::string> plugins;  // "NAME VERSION DIGEST" of each; nodes must have them alike
  uint64_t seed = 0;                 // everything not seeded by its own section
  uint32_t rounds = 1;
  uint64_t clients = 0;         // the population; 0: not known before the workers have registered
  uint64_t train_clients = 0;   // those of them with training rows; 0: all
  uint64_t train_examples = 0;  // over the population
  uint64_t train_tokens = 0;    // likewise, of sequences; 0: the data has none
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

// N of the papers: the clients that can train. Clients that are held out or empty are not in it.
inline uint64_t TrainClients(const RunConfig& run) {
  return run.train_clients > 0 ? run.train_clients : run.clients;
}

// Σ w_i over the population, under the run's weight policy.
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

// Everything above that decides the bits of a result, as "section.key" → value: the fingerprint of
// a run. `name` and `rounds` are left out: a finished run may be carried on for longer.
std::map<std::string, std::string> Describe(const RunConfig& run);

}  // namespace macaw
