#include "scheduler/policies/slots.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/spelling.h"
#include "scheduler/placement.h"

namespace macaw::scheduler {
namespace {

// What a client adds to its queue's end, as if the worker's slots shared the work evenly.
double ShareOf(const WorkerQueue& queue, const CohortEntry& entry) {
  return queue.worker.costs.Seconds(WorkOf(entry)) / static_cast<double>(queue.worker.slots);
}

// However slow a worker is taken for that has reported no times: without a client it never will. It
// gets the shortest client of the queue that ends last, which keeps others.
void GiveFirst(Plan& plan, WorkerQueue& untried) {
  WorkerQueue* last = nullptr;
  for (WorkerQueue& queue : plan.queues) {
    if (queue.queue.size() > 1 && (last == nullptr || queue.finish > last->finish)) last = &queue;
  }
  if (last == nullptr) return;
  Append(untried, last->queue.back());
  last->finish -= ShareOf(*last, last->queue.back());
  last->queue.pop_back();
}

}  // namespace

Plan EmptyPlan(std::span<const WorkerInfo> workers, HandOut hand_out) {
  Plan plan{.hand_out = hand_out};
  std::vector<Costs> all;
  for (const WorkerInfo& worker : workers) all.push_back(worker.costs);
  const std::optional<Costs> guess = GuessedCosts(all);
  for (const WorkerInfo& worker : workers) {
    plan.queues.push_back({.worker = worker});
    if (!worker.costs.InSeconds() && guess->InSeconds()) plan.queues.back().worker.costs = *guess;
  }
  return plan;
}

std::vector<size_t> SlotOwners(std::span<const WorkerInfo> workers) {
  std::vector<size_t> owners;
  for (size_t w = 0; w < workers.size(); ++w) owners.insert(owners.end(), workers[w].slots, w);
  return owners;
}

std::string Scene(size_t clients, std::span<const WorkerInfo> workers) {
  const size_t slots = SlotOwners(workers).size();
  return absl::StrCat(Counted(clients, "client"), " on ", Counted(slots, "slot"), " of ",
                      Counted(workers.size(), "worker"));
}

void Append(WorkerQueue& queue, const CohortEntry& entry) {
  queue.queue.push_back(entry);
  queue.finish += ShareOf(queue, entry);
}

void PlaceLongestFirst(const Cohort& cohort, Plan& plan) {
  std::vector<WorkerInfo> workers;
  for (const WorkerQueue& queue : plan.queues) workers.push_back(queue.worker);
  std::vector<std::pair<double, const CohortEntry*>> order;
  order.reserve(cohort.entries.size());
  // Measures all queues by the first worker's costs, because devices differ more in speed than in
  // the shape of their costs.
  for (const CohortEntry& entry : cohort.entries)
    order.emplace_back(workers[0].costs.WithoutState(WorkOf(entry)), &entry);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  Placement placement(workers);
  for (const auto& [seconds, entry] : order) {
    const Placement::Turn turn = placement.Put(*entry);
    WorkerQueue& queue = plan.queues[turn.worker];
    queue.queue.push_back(*entry);
    queue.finish = std::max(queue.finish, turn.finish);
  }
  for (WorkerQueue& queue : plan.queues) {
    if (queue.queue.empty() && queue.worker.slots > 0 && queue.worker.costs.of_others)
      GiveFirst(plan, queue);
  }
}

}  // namespace macaw::scheduler
