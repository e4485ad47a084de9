#include "cli/simulate/script.h"

#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/process/exit.h"
#include "cli/process/programs.h"
#include "cli/simulate/run_folder.h"
#include "core/child.h"
#include "core/digest.h"
#include "core/files.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "training/backends.h"

namespace macaw::cli {

absl::StatusOr<std::string> DescribeScript(Config& config) {
  MACAW_ASSIGN_OR_RETURN(const std::string programs, ProgramFolder());
  MACAW_ASSIGN_OR_RETURN(const SocketFolder folder, SocketFolder::Make());
  const std::string out = absl::StrCat(folder.socket(), ".safetensors");
  const std::string log = absl::StrCat(folder.socket(), ".log");
  MACAW_ASSIGN_OR_RETURN(Child worker,
                         Child::Spawn({.name = "macaw-worker",
                                       .argv = {programs + "/macaw-worker", "--describe-script",
                                                config.node.model_script, "--out", out},
                                       .log = log}));
  const Exit end = worker.Reap();
  if (end.code == kExitMissingBackend) {
    return training::Backends(training::Backends::FolderBeside(programs))
        .Missing(training::kTorchBackend, "a scripted module needs LibTorch");
  }
  if (!end.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("model.torchscript: ", end.Text()));
  }
  MACAW_ASSIGN_OR_RETURN(std::string bytes, ReadFile(out));
  MACAW_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Parse(BytesOf(bytes), out));
  config.run.model.tensors = absl::StrSplit(file.metadata().at("tensors"), '\n');
  config.run.model.script_digest = file.metadata().at("script_digest");
  return bytes;
}

}  // namespace macaw::cli
