#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aggregation/channel.h"
#include "core/clock.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "scheduler/cohort.h"
#include "server/engine/roster.h"
#include "virtual_time/clock.h"

namespace macaw::server {

// The fixed facts of one (round, phase). They are set before its first lease.
struct PhaseOrder {
  Round round{};
  Phase phase{};
  aggregation::GridOrder grid;
  // Where rounds do not wait for each other: how old the models are from which its clients train,
  // without the newest, ascending; and how old those are from which later clients will have
  // trained.
  std::vector<uint32_t> staleness = {};
  std::vector<uint32_t> kept = {};
};

// What the clients of a phase train from.
struct PhaseModels {
  fleet::Broadcast newest;
  std::vector<fleet::OlderModel> older = {};  // those of PhaseOrder::staleness, in its order
  // A sum of one client alone has at most so many bytes, in any form.
  uint64_t most_bytes_alone = std::numeric_limits<uint64_t>::max();

  // NOLINTNEXTLINE(google-explicit-constructor): rounds that wait for each other have no older ones
  PhaseModels(fleet::Broadcast broadcast) : newest(std::move(broadcast)) {}
};

// A client of a round's cohort.
struct Seat {
  scheduler::CohortEntry entry;
  double weight = 1;    // under the run's weight policy, without the multiplicity
  uint32_t tokens = 0;  // in its training rows; 0 unless the rows are sequences
  HoldingId holding;
  uint64_t place = 0;  // index of the client in its holding
  // By how many rounds its model is older than the newest one (arrivals.h).
  uint32_t staleness = 0;
  Fence state;            // the version of its state to read; counter 0: none yet
  TimePoint leased_at{};  // time of its last lease in the open phase
};

// Of a phase with these seats: PhaseOrder::grid and PhaseOrder::staleness.
aggregation::GridOrder GridOf(const std::vector<Seat>& seats);
std::vector<uint32_t> AgesOf(const std::vector<Seat>& seats);

// A round of a fleet whose rounds do not wait for each other: it closes with so many arrivals, and
// whoever trains then goes on in the next round.
struct ArrivalStep {
  uint64_t arrivals = 0;
  // Devices arrive now. False: the round repeats one of a fleet's log, whose clients, grid and kept
  // models (PhaseOrder) are known. Then nobody goes on.
  bool live = true;
  aggregation::GridOrder grid = {};
  std::vector<uint32_t> kept = {};
  // Whether seats keep the leases that they have from the round before.
  bool keeps_leases = true;
};

// A client that a round asks, whether it counts or not.
struct AskedClient {
  ClientId client;
  std::optional<double> seconds = {};  // of its turn in virtual time
};

// Who trains in a round.
struct DrawnRound {
  std::vector<Seat> seats;                           // by client
  std::optional<virtual_time::RoundTime> time = {};  // of a run with virtual time
  std::vector<AskedClient> asked = {};               // by client; of a sampling that learns
  std::optional<ArrivalStep> step = {};
};

// Times of a phase. They differ from run to run, like everything that is timed.
struct PhaseTimes {
  TimePoint opened{};    // the broadcast was requested
  TimePoint ready{};     // the broadcast was ready; planning and leases begin
  TimePoint gathered{};  // the last part had been added to the sum
};

// One client's turn on a slot, as its worker reports it. Times are on the server's clock.
struct Turn {
  ClientId client;
  WorkerId worker;
  uint32_t slot = 0;
  TimePoint began{};
  double state_seconds = 0, load_seconds = 0, train_seconds = 0;
  uint64_t steps = 0;
};

// The result of a phase. Lists are in client order unless a comment says otherwise.
struct PhaseReport {
  Round round{};
  Phase phase{};
  uint64_t cohort = 0;  // clients drawn
  // Exactly the clients in the sum. Steps and losses are of all phases of the round so far.
  std::vector<fleet::ClientRecord> records;
  std::vector<fleet::LeftOut> left_out;
  std::vector<fleet::LeftOut> left_out_before;  // in the round's earlier phases, in phase order
  std::string dropped;    // why the server dropped the round; empty: it did not
  uint64_t requeued = 0;  // attempts that ended without a result; differs from run to run
  // Bytes that devices send and fetch, one client a part, in this phase and the round's earlier
  // ones: what the counted clients send; and each vector of a phase once a round, for each client
  // of the phase's cohort. The base of a model with frozen tensors is fetched once in a run, and is
  // in neither.
  uint64_t bytes_up = 0, bytes_down = 0;
  // Of a run with virtual time: of the round, and the clock after it, if this is its last phase.
  std::optional<virtual_time::RoundTime> virtual_time;
  virtual_time::ClockState clock;
  std::optional<double> mean_staleness;  // of the cohort, where rounds do not wait for each other
  PhaseTimes times;
  uint32_t slots = 0;       // of the workers registered when the phase closed
  std::vector<Turn> turns;  // one per record, in the order of arrival
};

}  // namespace macaw::server
