#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace macaw::cli {

// Rounds of a run in virtual time (virtual_time/clock.h). Times are in seconds since the run began.
struct VirtualTrace {
  // A client's turn on its device.
  struct Turn {
    uint64_t client = 0;
    uint32_t base = 0;  // the round from whose model it began; 0: the initial one
    double began = 0;
    double download = 0, work = 0, upload = 0;  // seconds that they take
    // When it arrived, or, if that was later, when a round closed that did not wait for it.
    double ended = 0;
  };
  // What the server did at the end of a round.
  struct Step {
    uint32_t round = 0;
    double began = 0, ended = 0;
    uint64_t clients = 0, late = 0;  // that counted, and the column `late`
  };
  std::vector<Turn> turns;  // by their beginning
  std::vector<Step> steps;
};

// Where each turn is drawn: the first place in which no other one goes on. Places count from 0, and
// there are no more than the most turns at a time.
std::vector<uint32_t> PlacesOf(const std::vector<VirtualTrace::Turn>& turns);

// A Chrome trace, as timeline.json is: a row for the server, with a mark for each of its steps, and
// one for each place, with turns and their downloads, work and uploads.
std::string TraceText(const VirtualTrace& trace);

}  // namespace macaw::cli
