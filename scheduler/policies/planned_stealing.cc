// Assumes that predicted times are right on average but wrong for a single client, and that a
// request to the server is cheap compared with a client. Starts with the plan of longest_first and
// hands it out in pieces. Clients that are not handed out are planned anew as slots report back
// (dispatch.h), so wrong predictions even out, and no slot waits while a client that it should
// train has not started. A phase of a few milliseconds is handed out at once, because further
// requests would cost more than they gain.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/policies/policies.h"
#include "scheduler/policies/slots.h"

namespace macaw::scheduler {
namespace {

constexpr double kTooShortToSplit = 10e-3;  // seconds

bool GoesOutWhole(const Plan& plan) {
  return std::ranges::all_of(plan.queues, [](const WorkerQueue& queue) {
    return queue.worker.costs.known && queue.finish <= kTooShortToSplit;
  });
}

// "; worker 3 is expected to take longest, 4.2 s on 2 slots".
std::string Tightest(const Plan& plan) {
  const WorkerQueue* last = nullptr;
  for (const WorkerQueue& queue : plan.queues) {
    if (!queue.queue.empty() && (last == nullptr || queue.finish > last->finish)) last = &queue;
  }
  if (last == nullptr) return "";
  const Costs& costs = last->worker.costs;
  if (!costs.InSeconds()) return "; no times are known yet, so rows stand for seconds";
  return absl::StrCat("; worker ", last->worker.worker.value,
                      costs.known ? "" : ", which has reported no times yet,",
                      " would end last, after ", last->finish, " s");
}

}  // namespace

Plan PlannedStealingScheduler::Assign(const Cohort& cohort,
                                      std::span<const WorkerInfo> workers) const {
  Plan plan = EmptyPlan(workers, HandOut::kGuided);
  if (SlotOwners(workers).empty()) {
    plan.reason = "no worker can train.";
    return plan;
  }
  PlaceLongestFirst(cohort, plan);
  if (GoesOutWhole(plan)) {
    plan.hand_out = HandOut::kWhole;
    plan.uncollected = kTooShortToSplit;
  }
  plan.reason = absl::StrCat(
      "longest client first, each to the slot that finishes it first, ",
      plan.hand_out == HandOut::kWhole ? "at once" : "planned anew as slots report back", ": ",
      Scene(cohort.entries.size(), workers), Tightest(plan), ".");
  return plan;
}

}  // namespace macaw::scheduler
