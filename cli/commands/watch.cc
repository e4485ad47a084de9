#include "cli/watch/watch.h"

#include <poll.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/process/signals.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// Serves that page while the runs go on, until Ctrl-C (cli/watch/watch.h).
struct WatchCommand {
  std::vector<std::string> runs;
  int port = 0;  // 0: any free one
};

absl::Status Serve(const WatchCommand& command) {
  MACAW_ASSIGN_OR_RETURN(const SignalFd signals, SignalFd::Open());
  MACAW_ASSIGN_OR_RETURN(const auto page, LivePage::Start(command.runs, command.port));
  std::cout << absl::StrCat("http://localhost:", page->port(),
                            "/ shows the runs while they go on; Ctrl-C ends it\n")
            << std::flush;
  pollfd ends{.fd = signals.fd(), .events = POLLIN, .revents = 0};
  while (::poll(&ends, 1, /*timeout=*/-1) < 1) {
  }
  return absl::OkStatus();
}

int WatchRuns(const WatchCommand& command) { return Report(Serve(command)); }

}  // namespace

void AddWatch(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("watch", "The page of `macaw report` in a browser, while the runs go on");
  auto options = std::make_shared<WatchCommand>();
  command->add_option("RUN", options->runs, "Folders of runs")->required();
  command->add_option("--port,-p", options->port, "Where to listen, on this machine alone")
      ->check(CLI::Range(1, 65535));
  command->footer(
      "What a deployed run waits for, and its nodes, are on the server's page (server.http).");
  command->final_callback([=, &run] { run = [options] { return WatchRuns(*options); }; });
}

}  // namespace macaw::cli
