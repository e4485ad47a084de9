#include "cli/results/compare.h"

#include <iostream>

#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "core/files.h"
#include "core/status.h"
#include "sdk/catalogue.h"

namespace macaw::cli {
namespace {

absl::Status Show(const CompareCommand& command) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<RunResult> runs, ReadRuns(command.runs));
  MACAW_ASSIGN_OR_RETURN(const ResultTable table,
                         Compare(runs, command.metrics, sdk::Catalogue::Builtins().algorithms(),
                                 {.select = command.select, .paired = command.paired}));
  if (command.json || command.csv == "-") {
    std::cout << (command.json ? TableJson(table) + "\n" : TableCsv(table));
    return absl::OkStatus();
  }
  std::cout << TableText(table);
  return command.csv.empty() ? absl::OkStatus() : AtomicWriteFile(command.csv, TableCsv(table));
}

}  // namespace

int CompareRuns(const CompareCommand& command) { return Report(Show(command)); }

}  // namespace macaw::cli
