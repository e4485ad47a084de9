#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// What the folder of a run that was started by hand remembers of its server, for the one that goes
// on (`macaw-server --resume`).
namespace macaw::cli {

// `--authority off`: a run goes on without the authority that it began with.
constexpr absl::string_view kNoAuthority = "off";

// The file with the address of the server, which workers with --run-dir read, too.
std::string AddressFile(const std::string& run_dir);
// The file with the operators' address, where server.admin names one.
std::string OperatorsAddressFile(const std::string& run_dir);

// Where the next server of the run listens. A port that the configuration leaves open (`configured`
// is empty or ends with ":0") is the one of the server before: its workers look for it there.
std::string ListenAgain(const std::string& run_dir, const std::string& configured);

// The authority of a server: its folder, "" for none, and whether only the run's folder names it.
struct AuthorityChoice {
  std::string folder;
  bool remembered = false;
};

// What an option or the configuration names (`named`), in a resumed run what the server before had.
// An error: the folder names an authority, but nobody can tell which.
absl::StatusOr<AuthorityChoice> ChooseAuthority(const std::string& run_dir, bool resumes,
                                                const std::string& named);

// Remembers the authority for the next server of the run; "": the run has none.
absl::Status KeepAuthority(const std::string& run_dir, const std::string& folder);

// Adds to the error of an authority that cannot be opened what to do about one that only the run's
// folder names.
absl::Status ExplainRemembered(const absl::Status& status);

}  // namespace macaw::cli
