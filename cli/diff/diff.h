#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/diff/tensors.h"
#include "cli/diff/trace.h"

namespace macaw::cli {

struct DiffOptions {
  // 0: the bits. Above 0: numbers may differ as Agree (tensors.h) says; digests are not compared.
  // Counts of clients, rows and steps are compared exactly all the same.
  double tolerance = 0;
  bool digests = false;       // true: digests are compared all the same
  bool judge_tensors = true;  // false: under a tolerance, tensors are shown and decide nothing
};

// Two values of one name; nothing: that side does not have it.
struct ValueDifference {
  std::string name;
  std::optional<double> first, second;
};

// A client whose record of the round differs.
struct ClientDifference {
  uint64_t client = 0;
  std::vector<ValueDifference> values;  // empty: one side has no record of it
  std::string why;                      // "only the first has a record"
};

// The first place at which two runs part.
struct Parting {
  // What parts: the clients that are drawn, the model that the first round sends, the clients'
  // training, the model after the round, a metric, rows of metrics that are lost, the number of
  // rounds, or the clients' states.
  enum class Stage { kDraw, kStart, kTraining, kModel, kMetrics, kRows, kEnd, kStates };
  uint32_t round = 0;
  Stage stage = Stage::kTraining;
  std::string what;                       // a phrase
  std::vector<ValueDifference> columns;   // of metrics.jsonl
  std::vector<ClientDifference> clients;  // of clients.jsonl, by client
  // Clients in sums that differ although they are of the same clients. One of them at least has
  // trained otherwise.
  std::vector<uint64_t> among;
};
const char* NameOf(Parting::Stage stage);

// Models after the same round.
struct ModelDifference {
  uint32_t round = 0;
  std::string first, second;  // files
  std::vector<TensorDifference> tensors;

  bool differs() const;
  bool is_beyond() const;
};

// A fact that is not the same; "" where a side does not have it.
struct FactDifference {
  std::string name, first, second;
};

struct DiffReport {
  std::string first, second;        // paths
  std::string first_is, second_is;  // "finished, 10 rounds"
  double tolerance = 0;
  uint32_t rounds = 0;                    // that both tell of
  uint32_t columns = 0;                   // of metrics that both have
  std::optional<Parting> parting;         // of the bits
  std::optional<Parting> beyond;          // of the tolerance, if there is one
  std::vector<FactDifference> settings;   // keys that decide a result
  std::vector<FactDifference> elsewhere;  // keys that do not: names, places, where it is computed
  std::vector<FactDifference> facts;      // versions, data, numeric profile
  std::vector<ModelDifference> models;    // that both have of a round
  std::vector<std::string> unknown;       // what cannot be known, and what would tell; sentences
  std::vector<std::string> notes;         // what could not be read; sentences

  // Whether the runs are the same: their bits, or within the tolerance.
  bool same() const { return tolerance > 0 ? !beyond.has_value() : !parting.has_value(); }
};

// Finds where two runs part. An error if they have nothing in common that can be compared.
absl::StatusOr<DiffReport> Diff(const Trace& first, const Trace& second,
                                const DiffOptions& options);

std::string DiffText(const DiffReport& report);  // for people: some lines
std::string DiffJson(const DiffReport& report);  // one object

}  // namespace macaw::cli
