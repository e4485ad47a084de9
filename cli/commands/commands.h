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

int ListModels();
int ListAlgorithms(const std::string& name);  // "": all, a line each
int ListPartitions();
int PrintConfigHelp();

// What this machine offers a run, and what is missing.
int Doctor();

}  // namespace macaw::cli
