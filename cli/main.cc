// The `macaw` command: a list of its verbs, which are in cli/commands/. Links no LibTorch. `admin`
// and `doctor --server` are the program macaw-admin.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"
#include "cli/process/programs.h"

namespace macaw::cli {
namespace {

// Whether another program does the command: one that links gRPC.
bool IsForAdmin(int argc, char** argv) {
  if (argc < 2) return false;
  const std::string command = argv[1];
  const auto names_server = [](const char* argument) {
    return std::string(argument).starts_with("--server");
  };
  return command == "admin" ||
         (command == "doctor" && std::any_of(argv + 2, argv + argc, names_server));
}

// Becomes macaw-admin. Returns only if that fails.
int BecomeAdmin(char** argv) {
  const absl::StatusOr<std::string> folder = ProgramFolder();
  if (!folder.ok()) return Report(folder.status());
  const std::string program = *folder + "/macaw-admin";
  ::execv(program.c_str(), argv);
  return Report(absl::NotFoundError(absl::StrCat(program, " is missing beside macaw")));
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  if (IsForAdmin(argc, argv)) return BecomeAdmin(argv);
  ExplainEndings("macaw");
  std::error_code gone;
  (void)std::filesystem::current_path(gone);
  if (gone) {
    PrintError("macaw", absl::StrCat("the folder that you are in cannot be used (", gone.message(),
                                     "): cd to one that exists"));
    return kExitUsage;
  }
  CLI::App app("Macaw: federated learning, simulated and deployed with the same programs", "macaw");
  app.set_version_flag("--version", "macaw " MACAW_VERSION);
  app.require_subcommand(1);
  std::function<int()> run;
  for (const auto& add :
       {AddSimulate, AddData,   AddLists,    AddDevices,      AddDoctor, AddPrivacy, AddNew,
        AddPlugin,   AddState,  AddTimeline, AddReport,       AddWatch,  AddTrack,   AddModel,
        AddLog,      AddReplay, AddCompare,  AddContribution, AddDiff,   AddBundle,  AddVerify,
        AddSweep,    AddPlan,   AddPki,      AddAudit})
    add(app, run);
  app.add_subcommand("admin", "See and steer a run while it goes on");  // for the list; see above
  if (const auto code = ParseCommandLine(app, "macaw", argc, argv)) return *code;
  return run();
}

}  // namespace
}  // namespace macaw::cli

int main(int argc, char** argv) {
  return macaw::cli::CloseOutput("macaw", macaw::cli::Main(argc, argv));
}
