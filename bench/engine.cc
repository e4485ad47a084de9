// The round engine alone, with many devices of which most wait for work: what its thread computes.
// Time is virtual and there is no network. Each device owns one client; a round asks a hundred of
// them and does not end. The others hold open polls of 30 s and ask again when these end.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/frame.h"
#include "core/status.h"
#include "scheduler/policies/policies.h"
#include "server/engine/round_engine.h"

namespace macaw::bench {
namespace {

using server::Effects;
using server::EngineOptions;
using server::RoundEngine;
using server::Ticket;

constexpr double kPoll = 30;     // seconds
constexpr double kWatched = 60;  // virtual seconds
constexpr int kReleases = 1000;
constexpr uint64_t kCohort = 100;         // clients
constexpr double kBeatsPerSecond = 1000;  // of all devices together, as the server asks

class Fleet {
 public:
  explicit Fleet(uint64_t devices) : devices_(devices), engine_(OptionsOf(devices), scheduler_) {
    for (uint64_t k = 0; k < devices; ++k) Join(k);
    for (uint64_t k = 0; k < devices; ++k) {
      now_ = TimePoint{} + FromSeconds(kPoll * static_cast<double>(k) / devices);
      Ask(k, /*running=*/0);
    }
    const double pause = std::clamp(devices / kBeatsPerSecond, 1.0, 10.0);
    for (uint64_t k = 0; k < devices; ++k)
      beats_.push({now_ + FromSeconds(pause * static_cast<double>(k) / devices), k});
    pause_ = FromSeconds(pause);
  }

  void Watch(double seconds) {
    const TimePoint end = now_ + FromSeconds(seconds);
    while (now_ < end) {
      now_ = std::max(now_, std::min(beats_.top().first, engine_.NextDeadline()));
      if (engine_.NextDeadline() <= now_) {
        ++ticks_;
        Carry(engine_.Tick(now_));
        for (const uint64_t k : std::exchange(ended_, {})) Ask(k, /*running=*/0);
      }
      while (beats_.top().first <= now_) {
        const uint64_t k = beats_.top().second;
        beats_.pop();
        beats_.push({now_ + pause_, k});
        Carry(engine_.Heartbeat({.session = sessions_[k], .progress = ++progress_}, now_).effects);
      }
    }
  }
  void GiveNothingBack() { Carry(engine_.Release({.session = sessions_[0]}, now_)); }
  uint64_t ticks() const { return ticks_; }
  uint64_t training() const { return training_; }

 private:
  static EngineOptions OptionsOf(uint64_t devices) {
    RunPlan run;
    run.rounds = 10;
    run.clients = devices;
    run.task = TaskKind::kClassification;
    run.model.input_shape = {2};
    run.model.classes = 2;
    run.cohort = {.size = kCohort, .seed = 1};
    return {.run = run, .workers = static_cast<uint32_t>(devices)};
  }
  void Join(uint64_t k) {
    const std::string name = absl::StrCat("device-", k);
    fleet::RegisterRequest node{
        .name = name, .incarnation = 1, .slots = 1, .input_shape = {2}, .classes = 2, .clients = 1};
    node.data_digest = DigestOf(name);
    node.owner = true;
    auto joined = engine_.Register(node, {.rows = {10}, .names = {name}}, now_);
    if (!joined.answer.ok()) {
      std::fprintf(stderr, "%s\n", joined.answer.status().ToString().c_str());
      std::exit(1);
    }
    sessions_.push_back(joined.answer->session);
    Carry(std::move(joined.effects));
  }
  void Ask(uint64_t k, uint32_t running) {
    const Ticket ticket = ++tickets_;
    asked_.resize(ticket + 1);
    asked_[ticket] = k;
    Carry(engine_.Lease(
        ticket,
        {.session = sessions_[k], .wanted = 1, .running = running, .wait = FromSeconds(kPoll)},
        now_));
  }
  void Carry(Effects effects) {
    for (const server::Reply& reply : effects.replies) {
      const auto& lease = std::get<fleet::LeaseReply>(reply.answer);
      training_ += lease.training.has_value() ? 1 : 0;
      if (lease.next == fleet::Next::kWait) ended_.push_back(asked_[reply.ticket]);
    }
    for (const server::Order& order : effects.orders) {
      if (const auto* prepare = std::get_if<server::PrepareBroadcast>(&order)) {
        const server::PhaseOrder& phase = prepare->order;
        const fleet::Blob model{.digest = DigestOf("model"), .size = 1};
        Carry(
            engine_.BroadcastReady(phase.round, phase.phase, fleet::Broadcast::Of({model}), now_));
      }
    }
  }

  const uint64_t devices_;
  scheduler::PlannedStealingScheduler scheduler_;
  RoundEngine engine_;
  TimePoint now_{};
  Duration pause_{};
  Ticket tickets_ = 0;
  uint64_t ticks_ = 0, progress_ = 0, training_ = 0;
  std::vector<SessionId> sessions_;
  std::vector<uint64_t> asked_;  // by ticket
  std::vector<uint64_t> ended_;  // devices whose polls have ended
  using Beat = std::pair<TimePoint, uint64_t>;
  std::priority_queue<Beat, std::vector<Beat>, std::greater<>> beats_;
};

void Measure(uint64_t devices) {
  double start = ThreadSeconds();
  Fleet fleet(devices);
  const double joining = ThreadSeconds() - start;
  start = ThreadSeconds();
  fleet.Watch(kWatched);
  const double watched = ThreadSeconds() - start;
  const double release = Shortest([&] {
                           for (int i = 0; i < kReleases; ++i) fleet.GiveNothingBack();
                         }) /
                         kReleases;
  std::printf("%8llu  %8llu  %10.1f  %11.1f  %11.4f  %9.2f\n",
              static_cast<unsigned long long>(devices),
              static_cast<unsigned long long>(fleet.training()), 1e6 * joining / devices,
              fleet.ticks() / kWatched, watched / kWatched, 1e6 * release);
}

}  // namespace
}  // namespace macaw::bench

int main(int argc, char** argv) {
  std::vector<uint64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    uint64_t devices = 0;
    if (!absl::SimpleAtoi(argv[i], &devices) || devices < macaw::bench::kCohort) {
      std::fprintf(stderr, "usage: bench_engine [DEVICES]...   at least %llu each\n",
                   static_cast<unsigned long long>(macaw::bench::kCohort));
      return 2;
    }
    sizes.push_back(devices);
  }
  if (sizes.empty()) sizes = {1000, 3000, 10000, 30000};
  macaw::bench::PrintHeading(argc, argv);
  std::printf(" devices  training  join us each   ticks a s   cores used  release us\n");
  for (const uint64_t devices : sizes) macaw::bench::Measure(devices);
  return 0;
}
