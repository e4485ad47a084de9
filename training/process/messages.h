#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/peer/shared_vectors.h"
#include "training/api/metrics.h"
#include "training/api/trainer.h"
#include "training/process/shared_rows.h"

// What worker and program say to each other: a JSON object a line (docs/guides/own-program.md).
// The parsers read what a stranger's program wrote, so each field is checked.
namespace macaw::training::process {

inline constexpr int kProtocol = 1;
inline constexpr char kPeerName[] = "its program";  // of the program, in messages

// The vectors that worker and program share, all of the model's layout. The gaps between their
// tensors stay zero.
enum TurnVector : size_t { kStart, kEnd, kCorrection, kAnchor };
inline constexpr size_t kTurnVectors = 4;

// The first line: what is the same for all turns. The answer is a Ready. `rows`: null unless the
// program is given its rows.
std::string HelloLine(const TrainerSetup& setup, const peer::SharedVectors& memory,
                      const SharedRows* rows);
struct Ready {
  std::string name;          // of the program and its versions; part of the numeric profile
  bool corrections = false;  // whether it adds μ·(w − a) + v to its gradients
  bool evaluates = false;
  // Whether it may train where the end is to lie: then the start is there, and nowhere else.
  bool in_place = false;
  // Whether it gives the model's outputs for rows that it is given, so that metrics can be computed
  // from them here.
  bool outputs = false;
};
absl::StatusOr<Ready> ParseReady(absl::string_view line);

// A turn. Its `id` comes back with the answer. `weights`: where the program finds them. `place`:
// where its rows lie; none: the program has rows of its own.
using Place = std::optional<SharedRows::Place>;
std::string TrainLine(uint64_t id, const Stage& stage, size_t number, const ClientTask& task,
                      TurnVector weights, const Place& place);
std::string EvaluateLine(uint64_t id, const data::Rows& rows, uint64_t begin, uint64_t end,
                         const Place& place);
// Asks for the model's outputs in the place.
std::string OutputsLine(uint64_t id, const SharedRows::Place& place);

struct Answer {
  std::string error;   // the program's own words; then only `fatal` is set beside it
  bool fatal = false;  // the run cannot go on; else only this client is left out
  uint64_t rows = 0, steps = 0;
  // Of a train stage: Σ learning rate and FedNova's ‖a‖₁ of its steps. Both NaN: they are not those
  // of SGD. None: the program says nothing of them, and is taken to follow [local].
  std::optional<double> rate_sum, a_norm1;
  // Empty: the program trained rows that it was given, and leaves their rating to the trainer.
  MetricSums sums;
};
// Errors say what is wrong with the answer. Of a train stage, sums that the program leaves out are
// NaN, but the number of examples is that of the rows, and the losses must be there. `given`:
// whether the program was given its rows.
absl::StatusOr<Answer> ParseTrained(absl::string_view line, uint64_t id, TaskKind task, bool given);
absl::StatusOr<Answer> ParseEvaluated(absl::string_view line, uint64_t id, TaskKind task);
absl::StatusOr<Answer> ParseOutputs(absl::string_view line, uint64_t id);

}  // namespace macaw::training::process
