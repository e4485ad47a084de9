#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "worker/emulation.h"

namespace macaw::bench {

// What the compared schedulers are put into: a population with its sizes, slots with their speeds,
// and times that are not what sizes say.

constexpr uint64_t kSeed = 20261121;
constexpr double kFixedSeconds = 0.010;  // of a client, on a slot of speed 1
constexpr double kRowSeconds = 0.001;    // of a row
constexpr double kLatency = 0.0002;      // from asking for work to having it

// "lognormal-1", "lognormal-2" (mean 100 rows), "power-1.5" (Pareto, 33 to 20000 rows),
// "synthetic-1-1" (⌊LogNormal(4, 2)⌋ + 50, at most 2000), each of 4000 clients; "speakers": the
// file.
absl::StatusOr<std::vector<uint32_t>> MakeSizes(const std::string& name,
                                                const std::string& speakers_file);

enum class Change : uint8_t { kNone, kCos, kHalving };

struct World {
  std::string sizes;
  std::vector<double> speeds;  // one worker of one slot each
  bool even = true;            // all speeds equal
  uint32_t per_slot = 8;       // cohort ÷ slots
  double noise = 0;            // standard deviation of a time ÷ its mean
  Change change = Change::kNone;
  uint32_t warmup = 10, rounds = 200;

  uint64_t cohort() const { return per_slot * speeds.size(); }
  std::string name() const;
};

// A slot's speed in a round (counted from 1, warm-up included).
double SpeedOf(const World& world, size_t slot, uint32_t round);
// What a client is really worth in a round, in seconds on a slot of speed 1: its size, times a
// log-normal factor of mean 1 drawn from (kSeed, round, client).
double WorkOf(const World& world, uint32_t rows, Round round, ClientId client);

// The table of the comparison.
std::vector<World> AllWorlds();

}  // namespace macaw::bench
