#pragma once

#include <optional>
#include <string>

namespace macaw::cli {

// `macaw replay RUN --out DIR`: runs a simulation again. What depended on time or faults is read
// from RUN's log: which clients were given up in which round, and how many rounds were done. Then
// reports whether both runs ended with the same model.
struct ReplayCommand {
  std::string run;
  std::string out;
  std::optional<std::string> processes, slots;  // as written; checked like their keys
  bool force = false;                           // overwrite a run in `out`
  bool quiet = false;
};
int Replay(const ReplayCommand& command);

}  // namespace macaw::cli
