#pragma once

#include <cstdint>
#include <vector>

#include "aggregation/channel.h"
#include "core/clock.h"
#include "core/ids.h"
#include "proto/fleet/messages.h"
#include "scheduler/cohort.h"
#include "server/engine/roster.h"

namespace macaw::server {

// What one (round, phase) is about, fixed before its first lease.
struct PhaseOrder {
  Round round{};
  Phase phase{};
  aggregation::GridOrder grid;
};

// A client of a round's cohort.
struct Seat {
  scheduler::CohortEntry entry;
  double weight = 1;    // under the run's weight policy, without its multiplicity
  uint32_t tokens = 0;  // of its training rows, where they are sequences
  HoldingId holding;
  uint64_t place = 0;     // in the holding
  Fence state;            // the version to read; counter 0: none yet
  TimePoint leased_at{};  // when it went out last, in the open phase
};

// When what happened in a phase. Differs from run to run, like everything that is timed.
struct PhaseTimes {
  TimePoint opened{};    // its broadcast was asked for
  TimePoint ready{};     // its broadcast was: it is planned, and leases begin
  TimePoint gathered{};  // the last part was in the sum
};

// One client's turn on a slot, by the server's clock; as its worker reports it.
struct Turn {
  ClientId client;
  WorkerId worker;
  uint32_t slot = 0;
  TimePoint began{};
  double state_seconds = 0, load_seconds = 0, train_seconds = 0;
  uint64_t steps = 0;
};

// What came of a phase, in client order.
struct PhaseReport {
  Round round{};
  Phase phase{};
  uint64_t cohort = 0;                       // clients drawn
  std::vector<fleet::ClientRecord> records;  // exactly the clients in the sum
  std::vector<fleet::LeftOut> left_out;
  std::vector<fleet::LeftOut> left_out_before;  // by the round's earlier phases, in their order
  uint64_t requeued = 0;  // attempts that ended without a result; differs from run to run
  PhaseTimes times;
  uint32_t slots = 0;       // of the workers that were there when it closed
  std::vector<Turn> turns;  // of the records, as they arrived
};

}  // namespace macaw::server
