#pragma once

#include <cstdint>
#include <string>

#include "core/ids.h"
#include "core/settings/section.h"

namespace macaw {

// Rounds that do not wait for each other (server/engine/arrivals.h). A round is then one step of
// the server, for which cohort.size clients have arrived; each has trained from the model that was
// the newest when it began.
struct AsynchronousConfig {
  // "synchronous"; "buffered" (Nguyen et al. 2022, FedBuff); "mixed" (Xie et al. 2019, FedAsync):
  // each arrival is a step, which moves the model towards the client's; "overlapped" (Sun et al.
  // 2024, CO2): a round's clients train while the updates of the round before travel.
  std::string mode = "synchronous";
  uint64_t concurrency = 0;    // clients that train at a time; 0: cohort.size
  uint64_t refill = 1;         // new clients begin as soon as so many have arrived
  double discount = 0.5;       // a of s(τ) = (1 + τ)^−a
  uint32_t max_staleness = 0;  // an arrival with a larger τ does not count; 0: all count
  double mixing = 0.6;         // α of "mixed"

  bool on() const { return mode != "synchronous"; }
  bool mixed() const { return mode == "mixed"; }
  bool overlapped() const { return mode == "overlapped"; }
  bool by_arrival() const { return on() && !overlapped(); }  // a step has the next arrivals
  friend bool operator==(const AsynchronousConfig&, const AsynchronousConfig&) = default;
};

// The keys of [round] that decide results.
settings::Section<AsynchronousConfig> AsynchronousSection();

// The round whose learning rate, steps and stragglers a client has that counts in `round` and whose
// model is so many rounds older than the newest one: that in which it began. Rounds that overlap
// have clients of their own, whose work is the round's.
inline Round WorkRound(const AsynchronousConfig& config, Round round, uint32_t staleness) {
  return config.overlapped() ? round : Round(round.value - staleness);
}

// s(τ), by which the update of a client counts less whose model is τ steps old.
double DiscountOf(const AsynchronousConfig& config, uint32_t staleness);

}  // namespace macaw
