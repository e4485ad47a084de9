#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "proto/fleet/link.h"
#include "worker/availability.h"
#include "worker/patient_calls.h"
#include "worker/phase.h"
#include "worker/slot_pool.h"

namespace macaw::worker {

// At most this long between two heartbeats, unless the server asks for fewer.
constexpr Duration kPulse = std::chrono::seconds(1);

// Tells the server that a session works, how far it is, and whom it left out; carries out what the
// answers say. The other methods but `over` and `lost` are for one thread at a time.
class Heartbeats {
 public:
  // All must outlive this. `availability`: null: the node may always work.
  Heartbeats(fleet::FleetLink& link, const RunContext& context, const PatientCalls& calls,
             SlotPool& pool, Availability* availability, const fleet::RegisterReply& registration);

  // Sends them on the thread that it returns, until that is destroyed or the session is over.
  std::jthread Start();
  // Sends one now. The thread must have ended.
  absl::StatusOr<fleet::HeartbeatReply> Send();

  // What the server has answered: the run is over; it does not know the session.
  bool over() const { return over_; }
  bool lost() const { return lost_; }

 private:
  // When to send the next heartbeat: after a pause of `pace` if the server does not answer; nothing
  // if the session is over.
  std::optional<Duration> Beat(RetryPace& pace);
  uint64_t MemoryInUse();
  uint64_t Progress() const;

  fleet::FleetLink& link_;
  const RunContext& context_;
  const PatientCalls& calls_;
  SlotPool& pool_;
  Availability* const availability_;
  const fleet::Traffic traffic_before_ = link_.traffic();  // of earlier sessions
  const SessionId session_;
  const Duration longest_pulse_;  // between two heartbeats, so that no lease expires
  Duration pulse_;
  uint64_t memory_ = 0;
  TimePoint look_at_memory_{};
  std::atomic<bool> over_ = false;
  std::atomic<bool> lost_ = false;
};

}  // namespace macaw::worker
