#include "worker/heartbeats.h"

#include <algorithm>

#include "core/executor.h"
#include "core/memory.h"
#include "core/pause.h"
#include "worker/leased_work.h"
#include "worker/server_pace.h"

namespace macaw::worker {

Heartbeats::Heartbeats(fleet::FleetLink& link, const RunContext& context, const PatientCalls& calls,
                       SlotPool& pool, Availability* availability,
                       const fleet::RegisterReply& registration)
    : link_(link),
      context_(context),
      calls_(calls),
      pool_(pool),
      availability_(availability),
      session_(registration.session),
      longest_pulse_(registration.heartbeat_every),
      pulse_(std::min(longest_pulse_, kPulse)) {}

std::jthread Heartbeats::Start() {
  return std::jthread([this, pace = calls_.NewPace()](const std::stop_token& stop) mutable {
    NameThisThread("heartbeat");
    std::optional<Duration> pause = Beat(pace);
    while (pause.has_value() && !PauseUnlessStopped(stop, *pause)) pause = Beat(pace);
  });
}

std::optional<Duration> Heartbeats::Beat(RetryPace& pace) {
  if (availability_ != nullptr && !availability_->Now().available())
    GiveBack(link_, session_, pool_.DropUnbegun());
  const absl::StatusOr<fleet::HeartbeatReply> reply = Send();
  // The working thread notices this by itself and decides.
  if (!reply.ok()) return std::max(pulse_, pace.Next());
  if (reply->heartbeat_every > Duration{})
    pulse_ = std::min(std::max(reply->heartbeat_every, kShortestPulse), longest_pulse_);
  pace = calls_.NewPace();
  if (reply->stop || !reply->known) {
    (reply->stop ? over_ : lost_) = true;
    pool_.Interrupt();
    return std::nullopt;
  }
  pool_.Drop(reply->dropped);
  return pulse_;
}

absl::StatusOr<fleet::HeartbeatReply> Heartbeats::Send() {
  fleet::HeartbeatRequest request{.session = session_,
                                  .held = pool_.Queued(),
                                  .progress = Progress(),
                                  .left_out = pool_.TakeLeftOut()};
  request.memory_bytes = MemoryInUse();
  const fleet::Traffic traffic = link_.traffic();
  request.sent_bytes = traffic.up - traffic_before_.up;
  request.received_bytes = traffic.down - traffic_before_.down;
  return link_.Heartbeat(request);
}

// As it was looked at last: the system counts the pages of large vectors one by one, which may take
// a fiftieth of the time.
uint64_t Heartbeats::MemoryInUse() {
  const TimePoint now = SteadyClock().Now();
  if (now < look_at_memory_) return memory_;
  if (const auto bytes = ProportionalSetSize(); bytes.ok()) memory_ = *bytes;
  const TimePoint looked = SteadyClock().Now();
  look_at_memory_ = looked + 50 * (looked - now);
  return memory_;
}

// Grows with every piece of work for this worker's leases.
uint64_t Heartbeats::Progress() const {
  const uint64_t states = context_.states == nullptr ? 0 : context_.states->work_done();
  return pool_.work_done() + states + link_.moved();
}

}  // namespace macaw::worker
