#pragma once

#include <string>
#include <vector>

namespace macaw::cli {

// The small subcommands of `macaw`. Each prints to standard output, complains to standard error and
// returns the program's exit code.

// A configuration whose [data] and [partition] count, or a prepared file (.safetensors).
struct DataCommand {
  std::string source;
  std::vector<std::string> set;
  std::string out;
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
