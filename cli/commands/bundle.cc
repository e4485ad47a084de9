#include "cli/bundle/bundle.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "core/shell.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// Packs a result as one file, and says what is not in it.
struct BundleCommand {
  BundleOptions pack;
  bool without_model = false, without_log = false;
};

absl::Status PackAndTell(const BundleCommand& command) {
  BundleOptions options = command.pack;
  options.model = !command.without_model;
  options.log = !command.without_log;
  options.version = MACAW_VERSION;
  MACAW_ASSIGN_OR_RETURN(const PackedBundle packed, PackBundle(options));
  std::cout << absl::StreamFormat("%-10s %s: %s, %d bytes, sha256 %s\n", "bundle", packed.path,
                                  Counted(packed.manifest.files.size() + 1, "file"), packed.bytes,
                                  packed.sha256);
  bool first = true;
  for (const std::string& what : packed.manifest.left_out) {
    std::cout << absl::StreamFormat("%-10s %s\n", first ? "not in it" : "", what);
    first = false;
  }
  std::cout << absl::StreamFormat("%-10s macaw verify %s\n", "check", ForShell(packed.path))
            << std::flush;
  return absl::OkStatus();
}

}  // namespace

void AddBundle(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("bundle", "Pack a result as one file that `macaw verify` checks");
  auto options = std::make_shared<BundleCommand>();
  command->add_option("RUN", options->pack.run, "The folder of a run that is over")->required();
  command->add_option("--out,-o", options->pack.out,
                      "The file; default: the folder's name and .macaw.zip");
  command->add_flag("--without-model", options->without_model,
                    "Leave the weights out; their digest stays");
  command->add_flag("--without-log", options->without_log,
                    "Leave rounds.log out, which has names of nodes and numbers of clients");
  command->add_flag("--with-clients", options->pack.clients,
                    "Add what is known of single clients: clients.jsonl, clients_evaluated.json, "
                    "contributions.jsonl");
  command->add_option("--license", options->pack.license, "A URL, for the metadata (RO-Crate)");
  command->footer(
      "A ZIP archive and RO-Crate 1.1: configuration, metrics, summary, log, models, figures of the "
      "folder, digests. The data are never in it. The same folder gives the same bytes.");
  command->final_callback([=, &run] { run = [options] { return Report(PackAndTell(*options)); }; });
}

}  // namespace macaw::cli
