#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace macaw::cli {

// `macaw log RUN`: what happened in a run's rounds, a line each.
struct LogCommand {
  std::string run;
  bool json = false;              // a JSON object a line instead of the table
  bool follow = false;            // wait for more until the run has ended
  std::optional<uint32_t> round;  // of this one only
};
int ShowLog(const LogCommand& command);

}  // namespace macaw::cli
