#include "cli/server_arguments.h"

#include <fcntl.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macaw::cli {

void AddOptions(CLI::App& app, ServerArguments& arguments, StandingOptions& standing) {
  app.add_option("--config", arguments.config,
                 "The run's configuration (TOML; default with --resume: the run folder's)");
  app.add_option("--run-dir", arguments.run_dir,
                 "Where everything that the run leaves behind goes");
  CLI::Option* const stand = app.add_option(
      "--standing", standing.folder,
      "Instead of one run: do the runs that `macaw admin submit` sends, one after the other. Their "
      "folders are in this one");
  app.add_option("--run-admin", standing.run_admin,
                 "With --standing: server.admin of each run (default: a socket in its folder)")
      ->needs(stand);
  app.add_option("--admin", arguments.admin,
                 "Where operators reach the server (default: server.admin); with --standing, where "
                 "runs are submitted besides queue.sock in the folder");
  app.add_option(
      "--http", arguments.http,
      "HOST:PORT of the status page (default: server.http); with --standing, of the page "
      "of all runs");
  app.add_option("--http-token", arguments.http_token,
                 "A file whose first line the page asks for (default: server.http_token)");
  app.add_option("--run-http", standing.run_http,
                 "With --standing: server.http of each run (default: none)")
      ->needs(stand);
  app.add_option("--run-starts", standing.run_starts,
                 "With --standing: a run whose process ends with exit code 1 is started every five "
                 "seconds, so many times in a row without a round; then it has failed and the next "
                 "one begins. 0: without end")
      ->capture_default_str()
      ->needs(stand);
  app.add_option("--sync-state", arguments.sync_state,
                 "A folder of client states on this host, made durable before each checkpoint");
  app.add_option("--listen", arguments.listen,
                 "host:port, :0 for a free port, or unix:PATH (default: server.listen)");
  CLI::Option* const replay =
      app.add_option("--replay", arguments.replay,
                     "A log of rounds: clients that it gives up are not trained (`macaw replay`)");
  app.add_option("--without", arguments.without,
                 "With --replay: this client is trained in no round")
      ->allow_extra_args(false)
      ->needs(replay);
  app.add_option("--evaluate-after", arguments.evaluate_after,
                 "Evaluate the model after this round, too, as a run has done that went on after "
                 "it (`macaw verify`)")
      ->allow_extra_args(false);
  app.add_option("--callers", arguments.callers,
                 "A JSON list of {\"node\": NAME, \"token\": SECRET}: only these are answered "
                 "(default: every node that can reach the address)");
  app.add_option("--authority", arguments.authority,
                 "The folder that `macaw pki init` made: TLS, and only nodes with a certificate "
                 "are answered (default: server.authority, with --resume the one that the run has; "
                 "off: none)")
      ->excludes("--callers");
  app.add_flag("--resume", arguments.resume, "Go on from the newest checkpoint of the folder");
  app.add_flag("--resume-if-begun", arguments.resume_if_begun,
               "For service managers: --resume if a run has begun in the folder, else begin it; "
               "nothing if it is over");
  app.add_option("--state-reset", arguments.state_reset,
                 "With --resume: this client gives its state up and starts afresh")
      ->allow_extra_args(false);
  app.add_option("--ready-fd", arguments.ready_fd,
                 "Write the address to this descriptor once it can be dialled");
  app.add_option("--report-fd", arguments.report_fd,
                 "Write each finished row of metrics.jsonl to this descriptor");
  app.add_option("--step-fd", arguments.step_fd,
                 "Wait after each round for a line from this descriptor: \"go ROUND\" or \"stop "
                 "WHY\"");
  app.add_option("--lock-fd", arguments.lock_fd,
                 "A descriptor that holds the run's folder already (`macaw simulate` gives it)");
}

std::string MisplacedOption(const CLI::App& app) {
  const auto given = [&app](const std::string& name) { return app.count(name) > 0; };
  if (!given("--standing")) {
    const bool resumes = given("--resume") || given("--resume-if-begun");
    return given("--state-reset") && !resumes
               ? "--state-reset goes with --resume (or --resume-if-begun): a new run has no states"
               : "";
  }
  constexpr const char* kShared[] = {"--listen",   "--authority",  "--admin",
                                     "--http",     "--http-token", "--run-admin",
                                     "--run-http", "--run-starts"};  // all that --standing reads
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--standing" ||
        std::ranges::find(kShared, name) != std::end(kShared)) {
      continue;
    }
    return absl::StrCat("--standing goes with ", absl::StrJoin(kShared, ", "), " only: take ", name,
                        " out");
  }
  if (!given("--listen")) return "--standing needs --listen: workers look for each run there";
  if (given("--http-token") && !given("--http") && !given("--run-http"))
    return "--http-token is of a page: give --http or --run-http, too";
  return "";
}

std::string ClosedDescriptor(const ServerArguments& arguments) {
  const std::pair<const char*, int> named[] = {{"--ready-fd", arguments.ready_fd},
                                               {"--report-fd", arguments.report_fd},
                                               {"--step-fd", arguments.step_fd},
                                               {"--lock-fd", arguments.lock_fd}};
  for (const auto& [option, fd] : named) {
    if (fd >= 0 && ::fcntl(fd, F_GETFD) < 0)
      return absl::StrCat(option, " ", fd, ": this process has no open descriptor of that number");
  }
  return "";
}

}  // namespace macaw::cli
