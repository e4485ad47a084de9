#pragma once

#include <optional>
#include <string>

namespace macaw::cli {

// `macaw replay RUN --out DIR`: runs a simulation again in which what the world decided is read
// from the log of RUN (which clients were given up in which round, and how many rounds were done),
// and says whether it ends with the same model.
struct ReplayCommand {
  std::string run;
  std::string out;
  std::optional<std::string> processes, slots;  // as written; checked like their keys
  bool force = false;                           // `out` may hold a run
  bool quiet = false;
};
int Replay(const ReplayCommand& command);

}  // namespace macaw::cli
