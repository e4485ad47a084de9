#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// A run's timeline.json (server/timeline.h) as values. Times are in microseconds since the start of
// the run.
struct Timeline {
  struct Worker {
    std::string name;
    uint32_t slots = 0;
  };
  // A slot of a worker: (process, thread) of the file.
  using Place = std::pair<uint64_t, uint32_t>;
  struct Turn {
    Place place;
    std::string name;  // "client 17"
    double start = 0, length = 0;
    double load = 0;  // the part of `length` that is spent reading its state and its rows
  };
  struct Phase {
    uint32_t round = 0, phase = 0;
    uint32_t slots = 0;
    double opened = 0, ready = 0, gathered = 0, closed = 0;
    uint64_t clients = 0;
    double busy = 0;           // of all slots together
    uint32_t shown_every = 1;  // for a large phase, only every so many turns are recorded
    std::vector<Turn> turns;
  };
  std::map<uint64_t, Worker> workers;  // by process
  std::vector<Phase> phases;           // as they ran; a repeated round is there twice

  bool several_phases() const;  // some round has more than one phase
};

// Incomplete lines, which a crash can leave, are skipped. Errors name the file.
absl::StatusOr<Timeline> ReadTimeline(const std::string& path);

// Where the time of an average phase went, in microseconds, and two shares.
struct TimeSpent {
  uint64_t phases = 0, clients = 0;
  double whole = 0;          // the whole phase
  double prepare = 0;        // sampling, the broadcast
  double hand_out = 0;       // the plan, and leases until the first client begins
  double train = 0;          // from the first client's beginning to the last one's end
  double commit = 0;         // until the last part is in the sum
  double apply = 0;          // the algorithm's step, and what is kept
  double gap = 0;            // between two clients of a slot, per client
  double busy = 0;           // the share of the slots' time that is used, over whole phases
  double busy_training = 0;  // the same, over `train` only
};
TimeSpent Spent(const Timeline& timeline);

// What the turns of a worker took. One that was started again is the same worker.
struct WorkerTime {
  std::string name;
  uint32_t slots = 0;
  uint64_t clients = 0;
  double busy = 0, load = 0;  // of all its clients together, in microseconds
};
std::vector<WorkerTime> TimesOfWorkers(const Timeline& timeline);

// "12" or "12:14", of --rounds: the first round and the last one.
absl::StatusOr<std::pair<uint32_t, uint32_t>> RoundRange(const std::string& rounds);
// The first and the last phase of these rounds; of "": of the last three rounds.
absl::StatusOr<std::pair<size_t, size_t>> PhasesOf(const Timeline& timeline,
                                                   const std::string& rounds);

// Draws every slot's clients in the phases [first, last], with the server's steps above: SVG text.
std::string Picture(const Timeline& timeline, size_t first, size_t last);

}  // namespace macaw::cli
