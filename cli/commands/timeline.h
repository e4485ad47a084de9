#pragma once

#include <cstdint>
#include <string>

namespace macaw::cli {

// `macaw timeline RUN`: prints where the time of a run's rounds went, and draws some of them.
struct TimelineCommand {
  std::string run;
  std::string rounds;  // "12" or "12:14"; empty: the last three
  std::string svg;     // the picture's file; empty: none
};
int ShowTimeline(const TimelineCommand& command);

}  // namespace macaw::cli
