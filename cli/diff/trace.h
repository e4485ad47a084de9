#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/diff/tensors.h"
#include "core/digest.h"
#include "core/ids.h"
#include "core/safetensors.h"
#include "server/log/history.h"

namespace macaw::cli {

inline constexpr char kRoundColumn[] = "round";  // each table has it

// A row of metrics: numbers by column. NaN stands for null, a number that is undefined.
using MetricsRow = std::map<std::string, double>;

// A model that a folder has, with the round after which it was so.
struct TracedModel {
  uint32_t round = 0;
  std::string file;  // its name in the folder
  std::shared_ptr<const SafetensorsFile> storage;
  std::shared_ptr<const SafetensorsFile> base = nullptr;  // of frozen tensors, if they are apart
  Tensors tensors;
};

// What a server has counted as one sum: whose it is, and what it was.
struct TracedPart {
  std::vector<ClientId> clients;  // sorted
  Digest sums;
};

// Rounds that follow each other, the last one included.
struct RoundSpan {
  uint32_t first = 0, last = 0;
};

// The rounds of a run, or of a system that is not Macaw, as far as its files tell of them.
struct Trace {
  std::string path;
  bool is_run = false;  // of Macaw; what follows up to `models` is empty otherwise

  std::map<std::string, std::string> settings;  // config.toml: TOML by key
  std::string program, profile, data_digest;    // as in summary.json; "": not known
  std::string end;                              // "finished", …; "": not over (HasEnded)
  std::string model_digest, state_digest;       // after the last round of a run that is over
  uint32_t done = 0;                            // rounds, as summary.json says
  std::optional<server::log::History> history;  // rounds.log
  std::map<std::pair<Round, Phase>, std::vector<TracedPart>> parts;
  std::string clients_file;  // clients.jsonl; "": there is none

  std::set<std::string> names;          // of columns and tensors, as the files have them
  std::map<uint32_t, MetricsRow> rows;  // by round
  std::vector<TracedModel> models;      // by round; of equal rounds the final one first
  std::vector<std::string> notes;       // what could not be read, a sentence each

  // The number of rounds that are told of.
  uint32_t rounds() const;
  // Rounds of a run that were done, as its log or its summary says, and have no row. A run that has
  // not finished may lack its last row, and one that is not over those after its newest one.
  // Ascending.
  std::vector<RoundSpan> RoundsWithoutRow() const;
};

// Names of columns and tensors in a trace → the names that they get.
using Renames = std::map<std::string, std::string>;

// Reads one of:
//   - the folder of a run;
//   - a table, FILE.csv or FILE.jsonl: a row a round, with a column "round"; cells that are empty
//     or no numbers are left out;
//   - a folder with such a table (metrics.csv, metrics.jsonl), or with models, or with both: files
//     *.safetensors whose names end with the round ("model-12.safetensors").
// Errors name the file and the line.
absl::StatusOr<Trace> ReadTrace(const std::string& path, const Renames& renames);

// Returns an error if a name that is to be renamed is in no trace, or if the other side does not
// have the name that it gets. The error lists the names that there are.
absl::Status CheckRenames(const Renames& renames, const Trace& first, const Trace& second);

// The rows of one round in clients.jsonl, by client.
absl::StatusOr<std::map<uint64_t, MetricsRow>> ClientRows(const Trace& trace, uint32_t round);

}  // namespace macaw::cli
