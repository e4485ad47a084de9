#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/settings/section.h"

namespace macaw {

struct Schedule {
  // "constant"; "step": × gamma every `every` rounds; "exponential": × gamma each round;
  // "cosine": from 1 towards `floor` over `rounds`, of which the last is still above it. Round 1
  // has factor 1 (after warm-up).
  std::string kind = "constant";
  double gamma = 1.0;
  uint32_t every = 1;
  uint32_t rounds = 0;  // of a cosine, warm-up included
  double floor = 0.0;
  uint32_t warmup_rounds = 0;  // n: round r of the first n has r/(n+1) of the rate
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

struct LocalConfig {
  uint32_t epochs = 1;            // passes over the client's rows, if steps is 0
  uint32_t steps = 0;             // > 0: exactly this many steps; rows are repeated as needed
  double qsr = 0;                 // > 0: α of the quadratic rule; steps is then its H_base
  uint32_t batch_size = 10;       // 0: all rows in one batch
  std::string optimizer = "sgd";  // "sgd", "adam", "adamw"
  double lr = 0.1;                // adam, adamw: 0.001, where the configuration does not give it
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
  std::string precision = "full";     // "bf16", "tf32": of LibTorch's passes (training/torch)
  uint32_t micro_batch = 0;  // > 0: rows of a batch that pass at a time; LibTorch's trainers
  bool checkpoint = false;   // activations are computed again in the backward pass; LibTorch's
  friend bool operator==(const LocalConfig&, const LocalConfig&) = default;
};

// The keys of [local].
settings::Section<LocalConfig> LocalSection();

}  // namespace macaw
