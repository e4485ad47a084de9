#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace macaw::cli {

// `macaw log RUN`: what happened in a run's rounds, one line per event.
struct LogCommand {
  std::string run;
  bool json = false;              // one JSON object per line instead of the table
  bool follow = false;            // wait for new records until the run has ended
  std::optional<uint32_t> round;  // only this one
};
int ShowLog(const LogCommand& command);

}  // namespace macaw::cli
