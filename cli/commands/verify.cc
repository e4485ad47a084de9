#include "cli/verify/verify.h"

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/bundle/bundle.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/process/limits.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

// Checks a bundle's digests, runs its configuration again here, and compares. Exits as diff(1)
// does.
struct VerifyCommand {
  std::string bundle;
  VerifyOptions verify;
  std::vector<std::string> data;  // PATH of data.path, or KEY=PATH
  bool only_digests = false;
  bool json = false;
};

// The verdict of --only-digests. Whether the run is the same, nobody has looked.
std::string DigestsJson(const Bundle& bundle) {
  const nlohmann::ordered_json json = {
      {"same", nullptr}, {"bundle", bundle.name()}, {"sha256", bundle.sha256()}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<int> CheckBundle(const VerifyCommand& command) {
  VerifyOptions options = command.verify;
  if (!std::isfinite(options.tolerance) || options.tolerance < 0)
    return absl::InvalidArgumentError("--tolerance is a number from 0 on");
  options.quiet = options.quiet || command.json;
  for (const std::string& data : command.data) {
    const bool has_key = absl::StartsWith(data, "data.") && absl::StrContains(data, '=');
    options.set.push_back(has_key ? data : absl::StrCat("data.path=", data));
  }
  MACAW_ASSIGN_OR_RETURN(const Bundle bundle, Bundle::Open(command.bundle));
  if (command.only_digests) {
    std::cout << (command.json
                      ? DigestsJson(bundle)
                      : absl::StrCat("bundle     ", bundle.name(), ", sha256 ", bundle.sha256(),
                                     ": every file has its digest; nothing was run\n"));
    return kExitOk;
  }
  MACAW_ASSIGN_OR_RETURN(const Verification verification, Verify(bundle, options));
  std::cout << (command.json ? VerificationJson(bundle, verification) + "\n"
                             : VerificationText(bundle, verification));
  return verification.same() ? kExitOk : kExitDiffers;
}

int RunVerify(const VerifyCommand& command) {
  LeaveOneForADifference();
  const absl::Status files = EnsureOpenFiles();
  const absl::StatusOr<int> code = files.ok() ? CheckBundle(command) : files;
  if (code.ok()) return *code;
  if (absl::IsCancelled(code.status())) return kExitInterrupted;
  (void)Report(code.status());
  return kExitUsage;
}

}  // namespace

void AddVerify(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check a bundle: its digests, and its run made again on this machine");
  auto options = std::make_shared<VerifyCommand>();
  command->add_option("BUNDLE", options->bundle, "A file of `macaw bundle`")->required();
  command
      ->add_option("--data", options->data,
                   "Where the data are here: PATH of data.path, or KEY=PATH (data.test_path=FILE); "
                   "they are checked by their digest")
      ->allow_extra_args(false);
  command
      ->add_option("--set", options->verify.set,
                   "section.key=value: the path of another file that has moved, or where and how "
                   "the run is computed; keys that decide the result are refused")
      ->allow_extra_args(false);
  command->add_option("--config", options->verify.config,
                      "The simulation of a deployed run, whose server has no data");
  command->add_option("--out,-o", options->verify.out,
                      "Keep the run that is made in this folder; default: it is removed");
  command
      ->add_option("--tolerance", options->verify.tolerance,
                   "Where the numeric profile is another one, metrics may differ by this: "
                   "|a - b| <= T max(1, |a|, |b|); by 1e-5 at most if the model has the same bits")
      ->capture_default_str();
  command->add_flag("--trust", options->verify.trust,
                    "Run code that the bundle names: plug-ins, modules, a training program");
  command->add_flag("--only-digests", options->only_digests, "Run nothing");
  command->add_option("--processes", options->verify.processes, "workers.processes");
  command->add_option("--slots", options->verify.slots,
                      "workers.slots: clients at a time in each process");
  command->add_flag("-q,--quiet", options->verify.quiet, "No progress");
  command->add_flag("--json", options->json, "The verdict as one JSON object");
  command->footer(
      "With the same numeric profile every round must have the same bits; else digests are not "
      "compared, and metrics are within the tolerance.\n"
      "Exit codes: 0 the same, 1 it differs (where, as macaw diff says), 2 a bundle that is refused "
      "or could not be run here, 130 interrupted.");
  command->final_callback([=, &run] { run = [options] { return RunVerify(*options); }; });
}

}  // namespace macaw::cli
