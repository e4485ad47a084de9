#pragma once

#include <optional>
#include <string>
#include <vector>

namespace macaw::cli {

// `macaw replay RUN --out DIR`: runs a run again as a simulation. What depended on time or faults
// is read from RUN's log: which clients were present, which were given up in which round, and how
// many rounds were done. Then reports whether both runs ended with the same model.
struct ReplayCommand {
  std::string run;
  std::string out;
  // The configuration of the simulation. "": RUN's own. A deployed run needs it, because its server
  // has no data.
  std::string config;
  std::vector<std::string> set;                 // --set section.key=value, over `config`
  std::optional<std::string> processes, slots;  // as written; checked like their keys
  bool force = false;                           // overwrite a run in `out`
  bool quiet = false;
};
int Replay(const ReplayCommand& command);

}  // namespace macaw::cli
