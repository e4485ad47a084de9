#pragma once

#include <string>
#include <vector>

namespace macaw::cli {

// The small subcommands of `macaw`. Each prints to standard output, complains to standard error and
// returns the program's exit code.

// A configuration whose [data] and [partition] count, or data itself: a file or folder whose format
// can be told.
struct DataCommand {
  std::string source;
  std::vector<std::string> set;
  std::string out;
  bool force = false;  // `out` may exist
};
int DataInfo(const DataCommand& command);
int DataPrepare(const DataCommand& command);
int DataExportPartition(const DataCommand& command);

// Where a list looks beside the built-ins: plug-ins, and the configuration that names some.
struct ListCommand {
  std::vector<std::string> plugins;
  std::string config;
};
int ListModels(const ListCommand& command);
int ListAlgorithms(const ListCommand& command, const std::string& name);  // "": all, a line each
int ListPartitions();
int PrintConfigHelp();

// Runs side by side: a table of what differs and of their metrics.
struct CompareCommand {
  std::vector<std::string> runs;     // folders, or NAME-repeat.json
  std::vector<std::string> metrics;  // none: the usual ones
  std::string csv;                   // a file to write; "-": standard output, and no table
};
int CompareRuns(const CompareCommand& command);

// What this machine offers a run, and what is missing.
int Doctor();

}  // namespace macaw::cli
