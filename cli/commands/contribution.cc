#include "cli/results/contribution.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/results/text.h"
#include "cli/simulate/client_names.h"
#include "core/named_file.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// `macaw contribution RUN`: what each client has added, from contributions.jsonl.
struct ContributionCommand {
  std::string run;
  std::string csv;     // a file for all clients; "": none
  uint64_t most = 10;  // clients that are shown from each end
  bool json = false;   // all clients as JSON, instead of the table
};

absl::Status Tell(const ContributionCommand& command) {
  MACAW_ASSIGN_OR_RETURN(const std::vector<ClientContribution> clients,
                         ReadContributions(command.run));
  const absl::StatusOr<std::vector<std::string>> found = ClientNamesOf(command.run);
  if (!found.ok() && !command.json) {
    std::cerr << "note: the clients' names are not shown, because the data cannot be read: "
              << found.status().message() << std::endl;
  }
  const std::vector<std::string> names = found.value_or(std::vector<std::string>());
  const uint64_t most = std::min<uint64_t>(command.most, clients.size());
  if (command.json) {
    std::cout << ContributionJson(clients, names) << "\n";
  } else {
    std::cout << AlignedText(ContributionLines(clients, most, names));
  }
  if (!command.json && clients.size() > 2 * most) {
    std::cout << clients.size() - 2 * most
              << " more between the ones that helped most and least (--most)\n";
  }
  std::cout.flush();
  if (command.csv.empty()) return absl::OkStatus();
  return WriteNamedFile(command.csv, ContributionCsv(clients, names));
}

}  // namespace

void AddContribution(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("contribution", "What each client has added to the rounds of a run");
  auto options = std::make_shared<ContributionCommand>();
  command->add_option("RUN", options->run, "The run's folder")->required();
  command->add_option("--csv", options->csv, "Write all clients to this file");
  command->add_flag("--json", options->json, "All clients as a list of JSON objects");
  command->add_option("--most", options->most,
                      "How many clients are shown: so many that helped most, and least");
  command->footer(
      "Needs a run with evaluation.leave_one_out or evaluation.unlearn. A delta is the sum over the "
      "client's rounds of the metric with all clients less that without the client; an unlearned "
      "metric is of the newest model without the client's updates. Names are those of the run's "
      "data, which is opened for them.\n"
      "Exit codes: 0 told, 2 no such run, or it left no client out.");
  command->final_callback([=, &run] { run = [options] { return Report(Tell(*options)); }; });
}

}  // namespace macaw::cli
