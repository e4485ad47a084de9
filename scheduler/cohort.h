#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "plan/cohort.h"
#include "scheduler/feedback.h"
#include "virtual_time/presence.h"

namespace macaw::scheduler {

// One client of a round. A client that was drawn m times trains once and counts m times.
struct CohortEntry {
  ClientId client;
  uint32_t multiplicity = 1;
  uint64_t load = 0;  // training rows
  // More inputs of the cost model (cost.h); samplers leave them at their defaults.
  uint64_t steps = 0;      // local steps it will take
  bool has_state = false;  // the client has a state to read
};

// Who trains in a round, sorted by client id.
struct Cohort {
  Round round{};
  std::vector<CohortEntry> entries;
};

// When a cohort is drawn.
struct Moment {
  Round round;
  double seconds = 0;  // of virtual time since the run began
  // The round whose availability is asked for; `round` says which draw this is.
  Round step;
  // How often the clock has gone on within the step, since nobody was there: availability is drawn
  // anew each time.
  uint32_t pauses = 0;
  // Clients that cannot be drawn, ascending. Only "uniform" and "available" know them.
  std::span<const ClientId> busy;
  // At most so many are drawn, where the sampler knows `busy`.
  uint64_t most = ~uint64_t{0};
  // What a client's turn would take on its device, in seconds of virtual time. Empty: not known.
  std::function<double(const CohortEntry&)> seconds_of;

  // A round alone is enough where nobody's presence is asked for.
  Moment(Round r, double s = 0)
      : round(r), seconds(s), step(r) {}  // NOLINT(google-explicit-constructor)
};

// Draws cohorts. A cohort depends only on seed, moment, population and presence, and on what closed
// rounds told (feedback.h) where the sampling learns; never on measured time or on the workers.
class CohortSampler {
 public:
  virtual ~CohortSampler() = default;
  virtual Cohort Sample(const Moment& moment) const = 0;
  // The first time of `moment` or later at which a client is there that can be drawn; infinity:
  // none will be. Nothing: the sampler does not go by a table of presence. O(population).
  virtual std::optional<double> NextThere(const Moment&) const { return std::nullopt; }
};

// How many clients a round asks: cohort.size, or more with over-selection.
uint64_t AskedClients(const CohortConfig& config);

// How many clients a round draws: `most`, and of a sweep whose rounds differ one fewer in some.
struct RoundSize {
  uint64_t least = 0, most = 0;
};
// Of `clients` that can be drawn; 0: not known. cohort.size, and of "sweep" and "cyclic" the share
// of a round (sweep.h), which may be less.
RoundSize SizeOfRounds(const CohortConfig& config, uint64_t clients);

// `examples[k]` is the number of client k's training rows; it must outlive the sampler. Errors name
// the key of [cohort] to change. `feedback`: of a sampling that learns from rounds, which must
// outlive the sampler; else null.
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeSampler(const CohortConfig& config,
                                                           std::span<const uint32_t> examples,
                                                           const Feedback* feedback = nullptr);

// The same without the choice of over-selection: AskedClients(config) clients, of which the caller
// keeps the first. `presence`: who is there under sampling = "available", in virtual time; null: as
// `config` says. It must outlive the sampler.
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeCandidates(
    const CohortConfig& config, std::span<const uint32_t> examples,
    const virtual_time::Presence* presence, const Feedback* feedback = nullptr);

}  // namespace macaw::scheduler
