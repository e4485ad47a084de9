#include "testing/virtual_round.h"

#include <algorithm>
#include <deque>
#include <map>
#include <queue>
#include <utility>

namespace macaw::scheduler {
namespace {

enum class What : uint8_t { kJoin, kAsked, kAnswered, kEnded, kLook, kDied, kNoticed };

struct Event {
  double time = 0;
  uint64_t number = 0;  // breaks ties: first come, first served
  What what = What::kJoin;
  size_t worker = 0;
  uint32_t slot = 0;
};
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }
};

class VirtualRound {
 public:
  VirtualRound(const Plan& plan, const std::vector<VirtualWorker>& workers,
               const VirtualOptions& options)
      : options_(options), dispatch_(plan) {
    for (const VirtualWorker& worker : workers) {
      workers_.push_back(
          {.worker = worker, .running = std::vector<std::optional<VirtualTurn>>(worker.slots)});
      Post(worker.joins, What::kJoin, workers_.size() - 1);
      if (worker.dies.has_value()) Post(*worker.dies, What::kDied, workers_.size() - 1);
    }
  }

  VirtualOutcome Run() {
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      Handle(event);
    }
    for (Worker& worker : workers_) {
      if (worker.dead) continue;
      std::move(worker.done.begin(), worker.done.end(), std::back_inserter(outcome_.turns));
    }
    std::ranges::stable_sort(outcome_.turns, {}, &VirtualTurn::end);
    if (!outcome_.turns.empty()) outcome_.makespan = outcome_.turns.back().end;
    outcome_.left = dispatch_.size();
    return std::move(outcome_);
  }

 private:
  struct Worker {
    VirtualWorker worker;
    std::vector<std::optional<VirtualTurn>> running;
    std::deque<CohortEntry> queue;
    std::vector<CohortEntry> given;  // trained again if the worker dies
    std::vector<VirtualTurn> done;
    Piece answer;  // the answer that is on its way
    bool asking = false, parked = false, when_idle = false, dead = false, alive = false;
    uint32_t idle_when_asked = 0;
  };

  void Post(double time, What what, size_t worker, uint32_t slot = 0) {
    events_.push({.time = time, .number = number_++, .what = what, .worker = worker, .slot = slot});
  }

  static uint32_t Idle(const Worker& worker) {
    const auto idle =
        std::ranges::count_if(worker.running, [](const auto& turn) { return !turn.has_value(); });
    return static_cast<uint32_t>(idle);
  }

  void Handle(const Event& event) {
    Worker& worker = workers_[event.worker];
    if (worker.dead && event.what != What::kNoticed) return;
    switch (event.what) {
      case What::kJoin:
        worker.alive = true;
        return AskIfDue(event.worker);
      case What::kAsked:
        ++outcome_.asks;
        return Answer(event.worker);
      case What::kAnswered:
        worker.asking = false;
        worker.when_idle = worker.answer.when_idle;
        for (const CohortEntry& entry : worker.answer.clients) worker.queue.push_back(entry);
        worker.answer.clients.clear();
        Start(event.worker);
        return AskIfDue(event.worker);
      case What::kEnded:
        worker.done.push_back(*std::exchange(worker.running[event.slot], std::nullopt));
        Start(event.worker);
        return AskIfDue(event.worker);
      case What::kLook:
        if (worker.parked) Answer(event.worker);
        return;
      case What::kDied:
        worker.dead = true;
        return Post(now_ + options_.notice, What::kNoticed, event.worker);
      case What::kNoticed:
        dispatch_.RemoveWorker(worker.worker.worker);
        for (const CohortEntry& entry : worker.given) dispatch_.PutBack(entry);
        outcome_.repeated += worker.given.size();
        for (size_t other = 0; other < workers_.size(); ++other) {
          if (workers_[other].parked) Answer(other);
        }
        return;
    }
  }

  void Start(size_t index) {
    Worker& worker = workers_[index];
    for (uint32_t slot = 0; slot < worker.running.size() && !worker.queue.empty(); ++slot) {
      if (worker.running[slot].has_value()) continue;
      const CohortEntry entry = worker.queue.front();
      worker.queue.pop_front();
      const double end = now_ + options_.seconds(entry, worker.worker.worker, slot, now_);
      worker.running[slot] = {
          .entry = entry, .worker = worker.worker.worker, .slot = slot, .start = now_, .end = end};
      Post(end, What::kEnded, index, slot);
    }
  }

  void AskIfDue(size_t index) {
    Worker& worker = workers_[index];
    const bool low = worker.when_idle ? Idle(worker) > 0 && worker.queue.empty()
                                      : worker.queue.size() < worker.running.size();
    if (worker.asking || !low) return;
    worker.asking = true;
    worker.idle_when_asked =
        Idle(worker) - std::min(Idle(worker), static_cast<uint32_t>(worker.queue.size()));
    Post(now_ + options_.latency / 2, What::kAsked, index);
  }

  void Answer(size_t index) {
    Worker& worker = workers_[index];
    Piece piece = dispatch_.Take({.worker = worker.worker.worker,
                                  .slots = worker.worker.slots,
                                  .idle = worker.idle_when_asked,
                                  .now = now_,
                                  .least_seconds = options_.least_seconds});
    worker.parked = piece.clients.empty() && worker.idle_when_asked > 0;
    if (worker.parked) {  // its request is answered when something changes
      if (piece.look_again < std::numeric_limits<double>::infinity())
        Post(std::max(piece.look_again, now_), What::kLook, index);
      return;
    }
    worker.given.insert(worker.given.end(), piece.clients.begin(), piece.clients.end());
    worker.answer = std::move(piece);
    Post(now_ + options_.latency / 2, What::kAnswered, index);
  }

  const VirtualOptions& options_;
  DispatchQueue dispatch_;
  std::vector<Worker> workers_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t number_ = 0;
  double now_ = 0;
  VirtualOutcome outcome_;
};

}  // namespace

VirtualOutcome RunVirtualRound(const Plan& plan, const std::vector<VirtualWorker>& workers,
                               const VirtualOptions& options) {
  return VirtualRound(plan, workers, options).Run();
}

}  // namespace macaw::scheduler
