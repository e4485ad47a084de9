#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace macaw::cli {

// The small subcommands of `macaw`. Each prints to standard output, reports errors to standard
// error, and returns the program's exit code.

// The data to show: a configuration, of which only [data] and [partition] matter, or a data file or
// folder whose format can be recognised.
struct DataCommand {
  std::string source;
  std::vector<std::string> set;
  std::string out;
  bool force = false;  // overwrite `out` if it exists
};
int DataInfo(const DataCommand& command);
int DataPrepare(const DataCommand& command);
int DataExportPartition(const DataCommand& command);
// Writes a prepared file for each client into the folder `out`: NAME.safetensors, as its owner
// would have it.
int DataShards(const DataCommand& command);

// Writes the file of a server that has no data: what `source` and its data say, without them.
int WritePlan(const DataCommand& command);

// What to list besides the built-ins: plug-ins, and a configuration that names plug-ins.
struct ListCommand {
  std::vector<std::string> plugins;
  std::string config;
};
int ListModels(const ListCommand& command);
int ListAlgorithms(const ListCommand& command, const std::string& name);  // "": all, one line each
// Writes a page of Markdown for each algorithm into `folder`, which is made if need be.
int WriteRulePages(const ListCommand& command, const std::string& folder);
int ListPartitions();
int PrintConfigHelp(const ListCommand& command);
// Prints all that a configuration can say, as JSON (cli/config/describe.h).
int DescribeAll(const ListCommand& command, const std::string& version);

// Prints a table of runs: what differs between them, and their metrics.
struct CompareCommand {
  std::vector<std::string> runs;     // folders, or NAME-repeat.json (cli/results/run_paths.h)
  std::vector<std::string> metrics;  // empty: the usual ones
  std::string select, paired;        // CompareChoice
  std::string csv;                   // a file to write; "-": standard output, and no table
  bool json = false;                 // TableJson
};
int CompareRuns(const CompareCommand& command);

// Writes one HTML page about runs (cli/report/report.h).
struct ReportCommand {
  std::vector<std::string> runs;  // likewise
  std::string out;                // a file, or "-" for standard output
};
int WriteReport(const ReportCommand& command);

// Serves that page while the runs go on, until Ctrl-C (cli/watch/watch.h).
struct WatchCommand {
  std::vector<std::string> runs;
  int port = 0;  // 0: any free one
};
int WatchRuns(const WatchCommand& command);

// Hands a run's rows on to trackers (cli/track/).
struct TrackCommand {
  std::string run;
  std::vector<std::string> to;  // empty: what the run's configuration says
  std::string mlflow_uri;       // likewise
  bool follow = false;          // until the run's process ends, or Ctrl-C
};
int TrackRun(const TrackCommand& command);

// Prints the noise that is enough for an epsilon, or the epsilon of a noise, under [privacy].
struct PrivacyCommand {
  uint64_t clients = 0, cohort = 0, rounds = 0;
  std::optional<uint64_t> population;    // privacy.population; unset: clients
  std::optional<double> delta;           // unset: a tenth of 1 / population
  std::optional<double> epsilon, noise;  // one of them
};
int ShowPrivacy(const PrivacyCommand& command);

// Prints what this machine offers, and what is missing.
int Doctor();

}  // namespace macaw::cli
