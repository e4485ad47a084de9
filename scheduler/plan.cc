#include "scheduler/plan.h"

#include <algorithm>
#include <queue>

#include "absl/strings/str_cat.h"

namespace macaw::scheduler {
namespace {

struct Slot {
  double finish = 0;
  size_t worker = 0;
};
// Earliest finish first; the lower worker breaks ties, so that a plan is a function of its inputs.
struct Later {
  bool operator()(const Slot& a, const Slot& b) const {
    return a.finish != b.finish ? a.finish > b.finish : a.worker > b.worker;
  }
};

}  // namespace

Plan LongestFirstScheduler::Assign(const Cohort& cohort,
                                   std::span<const WorkerInfo> workers) const {
  Plan plan;
  std::priority_queue<Slot, std::vector<Slot>, Later> slots;
  for (size_t w = 0; w < workers.size(); ++w) {
    plan.queues.push_back({.worker = workers[w]});
    for (uint32_t s = 0; s < workers[w].slots; ++s) slots.push({.finish = 0, .worker = w});
  }
  if (slots.empty()) {
    plan.reason = "nobody is there to train";
    return plan;
  }
  std::vector<CohortEntry> order = cohort.entries;
  std::stable_sort(order.begin(), order.end(),
                   [](const CohortEntry& a, const CohortEntry& b) { return a.load > b.load; });
  for (const CohortEntry& entry : order) {
    Slot slot = slots.top();
    slots.pop();
    WorkerQueue& target = plan.queues[slot.worker];
    slot.finish += static_cast<double>(entry.load) / target.worker.speed;
    target.finish = std::max(target.finish, slot.finish);
    target.queue.push_back(entry);
    slots.push(slot);
  }
  plan.reason =
      absl::StrCat("longest client first, each to the slot that is free earliest: ", order.size(),
                   " clients on ", slots.size(), " slots of ", workers.size(), " workers");
  return plan;
}

}  // namespace macaw::scheduler
