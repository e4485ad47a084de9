#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/engine/round_engine.h"
#include "training/api/metrics.h"

// A small run for the tests of the engine: forty clients, cohorts of twelve, no model.
namespace macaw::server::fixtures {

inline constexpr uint64_t kPopulation = 40;
inline constexpr uint64_t kCohort = 12;
inline constexpr uint64_t kCentralTestRows = 35;

inline RunPlan TestRun(uint32_t rounds) {
  RunPlan run;
  run.task = TaskKind::kClassification;
  run.rounds = rounds;
  run.model.input_shape = {2};
  run.model.classes = 2;
  run.cohort = {.size = kCohort, .seed = 5};
  run.evaluation = {.every = 2, .chunk = 10};
  return run;
}

inline std::vector<uint32_t> Examples() {
  std::vector<uint32_t> examples(kPopulation);
  for (uint64_t i = 0; i < kPopulation; ++i) examples[i] = 1 + (i * 7) % 13;
  return examples;
}

inline fleet::ClientTable Table() { return {.rows = Examples()}; }

// A node with the whole population.
inline fleet::RegisterRequest NodeWithEverybody(const std::string& name, uint32_t slots) {
  return {.name = name,
          .incarnation = 1,
          .slots = slots,
          .input_shape = {2},
          .classes = 2,
          .clients = kPopulation,
          .central_test_rows = kCentralTestRows};
}

// An honest worker's record of a client, with a new version of its state.
inline fleet::ClientRecord RecordOf(const fleet::Assignment& assignment) {
  return {.attempt = {assignment.client, assignment.fence},
          .weight = assignment.weight,
          .examples = Examples()[assignment.client.value],
          .sums = std::vector<double>(training::SchemaFor(TaskKind::kClassification).sums.size()),
          .has_state = true,
          .bytes_up = 100 + assignment.client.value};
}

// Some clients cannot be trained in some rounds, on any worker.
inline bool IsLeftOut(Round round, ClientId client) {
  return (round.value * 31 + client.value * 17) % 11 == 0;
}

inline std::set<ClientId> Expected(Round round) {
  const auto examples = Examples();
  const auto sampler = *scheduler::MakeSampler(TestRun(1).cohort, examples);
  std::set<ClientId> expected;
  for (const auto& entry : sampler->Sample(round).entries) {
    if (!IsLeftOut(round, entry.client)) expected.insert(entry.client);
  }
  return expected;
}

// The state that survives a crash of the server: the content of the checkpoints.
struct Durable {
  uint32_t epoch = 0;
  uint32_t completed = 0;
  bool owes_evaluation = false;
  std::map<uint32_t, std::set<ClientId>> counted;  // by round
  std::set<uint32_t> evaluated;
  std::deque<VersionIndex> versions;  // of the newest two checkpoints
  // The store of client states: the number of turns in each version.
  std::map<Attempt, uint32_t> states;
  // What a turn had read and what it wrote, of each that ever was; and the sum of what all turns
  // have added, as an algorithm keeps it that sums states.
  std::map<Attempt, std::pair<uint32_t, uint32_t>> turns;
  int64_t sum = 0;
};

inline fleet::Blob BlobOf(Round round, Phase phase) {
  return {.digest = DigestOf(absl::StrCat(round.value, "/", phase.value)), .size = 1};
}

}  // namespace macaw::server::fixtures
