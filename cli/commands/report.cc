#include "cli/report/report.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "core/files.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

absl::Status Write(const ReportCommand& command) {
  MACAW_ASSIGN_OR_RETURN(const std::string page, ReportPage(command.runs));
  if (command.out == "-") {
    std::cout << page;
    return absl::OkStatus();
  }
  MACAW_RETURN_IF_ERROR(AtomicWriteFile(command.out, page));
  std::cout << absl::StrCat("wrote ", command.out, " (", (page.size() + 512) / 1024,
                            " kB); it opens in any browser, without a network\n");
  return absl::OkStatus();
}

}  // namespace

int WriteReport(const ReportCommand& command) { return Report(Write(command)); }

}  // namespace macaw::cli
