#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "data/dataset.h"

namespace macaw::testing_support {

// What must not depend on how a run is executed.
struct RunBytes {
  std::string model, states, metrics;
  friend bool operator==(const RunBytes&, const RunBytes&) = default;
};
void PrintTo(const RunBytes& bytes, std::ostream* out);

// How a run is executed.
struct Execution {
  std::string folder;        // of the run; it does not exist
  uint32_t owners = 0;       // this many first clients have a worker each
  uint32_t workers = 1;      // that share the clients which the owners leave
  uint32_t slots = 1;        // of each of these
  uint32_t interrupted = 0;  // a server and workers end after this round, and others go on; 0: none
  std::string repeats;       // the folder of a run of which each decision is taken; "": none
  std::vector<uint64_t> without = {};  // with `repeats`: clients that no round trains
};

// A run in this process, as `macaw simulate` does it but for processes and the wire: a server and
// real workers, with nothing but a function call between them. One thread.
class InProcess {
 public:
  // What `macaw simulate CONFIG --set …` finds before the run has a folder: an error is its
  // refusal.
  static absl::StatusOr<InProcess> Checked(const std::string& config,
                                           const std::vector<std::string>& set);

  // The bytes of the run; an error of the server, or else of a worker.
  absl::StatusOr<RunBytes> Run(const Execution& execution) const;

  const cli::Config& config() const { return config_; }

 private:
  InProcess(cli::Config config, std::unique_ptr<const data::Dataset> dataset)
      : config_(std::move(config)), dataset_(std::move(dataset)) {}
  // One server and its workers, until the run is over or interrupted.
  absl::Status Session(const Execution& execution, bool resume, uint32_t until) const;

  cli::Config config_;
  std::unique_ptr<const data::Dataset> dataset_;
};

// The rows of a run's metrics.
std::vector<nlohmann::json> RowsOf(const RunBytes& bytes);

// Where two runs of one log of decisions part; nullopt: nowhere.
std::optional<std::string> DifferenceOfLogs(const std::string& folder, const std::string& other);

}  // namespace macaw::testing_support
