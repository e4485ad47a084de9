#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "training/api/metrics.h"
#include "training/api/trainer.h"
#include "training/process/shared_vectors.h"

// What worker and program say to each other: a JSON object a line (training/README.md). The parsers
// read what a stranger's program wrote, so each field is checked.
namespace macaw::training::process {

inline constexpr int kProtocol = 1;

// The first line: what is the same for all turns. The answer is a Ready.
std::string HelloLine(const TrainerSetup& setup, const SharedVectors& memory);
struct Ready {
  std::string name;          // of the program and its versions; part of the numeric profile
  bool corrections = false;  // whether it adds μ·(w − a) + v to its gradients
  bool evaluates = false;
};
absl::StatusOr<Ready> ParseReady(absl::string_view line);

// A turn. Its `id` comes back with the answer.
std::string TrainLine(uint64_t id, const Stage& stage, size_t number, const ClientTask& task);
std::string EvaluateLine(uint64_t id, const data::Rows& rows, uint64_t begin, uint64_t end);

struct Answer {
  std::string error;  // the program's own words; then nothing else is set
  uint64_t rows = 0, steps = 0;
  MetricSums sums;
};
// Errors say what is wrong with the answer. Of a train stage, sums that the program leaves out are
// zero, except the losses.
absl::StatusOr<Answer> ParseTrained(absl::string_view line, uint64_t id, TaskKind task);
absl::StatusOr<Answer> ParseEvaluated(absl::string_view line, uint64_t id, TaskKind task);

}  // namespace macaw::training::process
