#include "bench/scheduler/contestants.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "bench/frame.h"
#include "scheduler/estimator.h"
#include "scheduler/policies/policies.h"

namespace macaw::bench {
namespace {

using scheduler::Cohort;
using scheduler::CohortEntry;
using scheduler::HandOut;
using scheduler::Plan;
using scheduler::VirtualTurn;
using scheduler::WorkerInfo;

Plan StaticPlan(const std::vector<WorkerInfo>& workers) {
  Plan plan{.hand_out = HandOut::kWhole};
  for (const WorkerInfo& worker : workers) plan.queues.push_back({.worker = worker});
  return plan;
}

// By rows, the most first, as NumPy's reversed sort leaves them.
std::vector<CohortEntry> MostRowsFirst(const Cohort& cohort) {
  std::vector<CohortEntry> order = cohort.entries;
  std::ranges::stable_sort(order, std::greater<>(), &CohortEntry::load);
  return order;
}

// A policy of ours that learns nothing.
template <typename Policy>
class Untaught final : public Contestant {
 public:
  Untaught(const std::vector<WorkerInfo>&, Policy policy) : policy_(std::move(policy)) {}
  Plan Assign(const Cohort& cohort, const std::vector<WorkerInfo>& workers) override {
    return policy_.Assign(cohort, workers);
  }
  void Learn(const std::vector<VirtualTurn>&) override {}

 private:
  Policy policy_;
};

// A policy of ours with our estimator; all slots are of one device kind.
template <typename Policy>
class Taught final : public Contestant {
 public:
  explicit Taught(const std::vector<WorkerInfo>& workers) {
    for (const WorkerInfo& worker : workers) estimator_.AddWorker(worker.worker, "slot");
  }
  Plan Assign(const Cohort& cohort, const std::vector<WorkerInfo>& workers) override {
    std::vector<WorkerInfo> informed = workers;
    for (WorkerInfo& worker : informed) worker.costs = estimator_.CostsOf(worker.worker);
    return policy_.Assign(cohort, informed);
  }
  void Learn(const std::vector<VirtualTurn>& turns) override {
    for (const VirtualTurn& turn : turns)
      estimator_.Observe(turn.worker, turn.entry, {.train_seconds = turn.end - turn.start});
    estimator_.EndRound();
  }

 private:
  scheduler::Estimator estimator_;
  Policy policy_;
};

// y ≈ a + b·x, unweighted, as numpy.polyfit of degree 1.
std::pair<double, double> FitLine(const std::vector<std::pair<double, double>>& points) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [rows, seconds] : points) {
    n += 1;
    x += rows;
    y += seconds;
    xx += rows * rows;
    xy += rows * seconds;
  }
  const double spread = n * xx - x * x;
  if (n < 2 || !(spread > 0)) return {n > 0 ? y / n : 0.0, 0.0};
  const double slope = (n * xy - x * y) / spread;
  return {(y - slope * x) / n, slope};
}

// FedML 0.9.6, Parrot (Tang et al. 2023): array-split for five rounds; then a line per worker,
// fitted to the times of each (worker, client): the last three ("window"), or an average that is
// written so that it grows without end ("EMA", as shipped). The plan takes clients by rows, most
// first, and the first slot at which the largest predicted sum stays smallest.
enum class Memory : uint8_t { kWindow, kAverage };
template <Memory memory>
class Parrot final : public Contestant {
 public:
  explicit Parrot(const std::vector<WorkerInfo>&) {}
  Plan Assign(const Cohort& cohort, const std::vector<WorkerInfo>& workers) override {
    if (++round_ <= 5) return scheduler::UniformScheduler().Assign(cohort, workers);
    std::vector<std::pair<double, double>> lines;
    for (const WorkerInfo& worker : workers) {
      std::vector<std::pair<double, double>> points;
      for (const auto& [client, times] : history_[worker.worker]) {
        for (const double seconds : times.seconds) points.emplace_back(times.rows, seconds);
      }
      lines.push_back(FitLine(points));
    }
    Plan plan = StaticPlan(workers);
    std::vector<double> sums(workers.size());
    double largest = 0;
    for (const CohortEntry& entry : MostRowsFirst(cohort)) {
      size_t best = 0;
      double least = 0;
      const auto cost = [&](size_t s) {
        return std::max(lines[s].first + lines[s].second * static_cast<double>(entry.load), 0.0);
      };
      for (size_t s = 0; s < sums.size(); ++s) {
        const double end = std::max(largest, sums[s] + cost(s));
        if (s == 0 || end < least) {
          least = end;
          best = s;
        }
      }
      sums[best] += cost(best);
      largest = least;
      plan.queues[best].queue.push_back(entry);
    }
    return plan;
  }
  void Learn(const std::vector<VirtualTurn>& turns) override {
    for (const VirtualTurn& turn : turns) {
      Times& times = history_[turn.worker][turn.entry.client];
      times.rows = static_cast<double>(turn.entry.load);
      const double seconds = turn.end - turn.start;
      if (memory == Memory::kAverage && !times.seconds.empty()) {
        times.seconds[0] += times.seconds[0] / 2 + seconds / 2;
        continue;
      }
      times.seconds.push_back(seconds);
      if (times.seconds.size() > 3) times.seconds.pop_front();
    }
  }

 private:
  struct Times {
    double rows = 0;
    std::deque<double> seconds;
  };
  std::map<WorkerId, std::map<ClientId, Times>> history_;
  int round_ = 0;
};

// Pollen (Sani et al. 2023): one round in turn; then per worker t = a·x + b·ln x + c by least
// squares over all times so far; clients by rows, most first, each to the worker with the least
// predicted load. (The paper fits per kind of GPU; here each slot is a kind of its own, which it
// may be.)
class Pollen final : public Contestant {
 public:
  explicit Pollen(const std::vector<WorkerInfo>&) {}
  Plan Assign(const Cohort& cohort, const std::vector<WorkerInfo>& workers) override {
    if (++round_ <= 2) return scheduler::RoundRobinScheduler().Assign(cohort, workers);
    Plan plan = StaticPlan(workers);
    std::vector<std::array<double, 3>> fits;
    for (const WorkerInfo& worker : workers) fits.push_back(Fit(sums_[worker.worker]));
    std::vector<double> loads(workers.size());
    for (const CohortEntry& entry : MostRowsFirst(cohort)) {
      const auto s = static_cast<size_t>(std::ranges::min_element(loads) - loads.begin());
      const std::array<double, 3> x = Features(entry);
      loads[s] += std::max(std::inner_product(x.begin(), x.end(), fits[s].begin(), 0.0), 0.0);
      plan.queues[s].queue.push_back(entry);
    }
    return plan;
  }
  void Learn(const std::vector<VirtualTurn>& turns) override {
    for (const VirtualTurn& turn : turns) {
      Sums& sums = sums_[turn.worker];
      const std::array<double, 3> x = Features(turn.entry);
      for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < 3; ++j) sums[i][j] += x[i] * x[j];
        sums[i][3] += x[i] * (turn.end - turn.start);
      }
    }
  }

 private:
  using Sums = std::array<std::array<double, 4>, 3>;  // XᵀX and Xᵀy
  static std::array<double, 3> Features(const CohortEntry& entry) {
    const auto rows = static_cast<double>(entry.load);
    return {1, rows, std::log(std::max(rows, 1.0))};
  }
  // Gauss-Jordan with a ridge that keeps equal sizes solvable.
  static std::array<double, 3> Fit(Sums m) {
    for (size_t i = 0; i < 3; ++i) m[i][i] = m[i][i] * (1 + 1e-9) + 1e-12;
    for (size_t i = 0; i < 3; ++i) {
      size_t pivot = i;
      for (size_t r = i + 1; r < 3; ++r) {
        if (std::abs(m[r][i]) > std::abs(m[pivot][i])) pivot = r;
      }
      std::swap(m[i], m[pivot]);
      for (size_t r = 0; r < 3; ++r) {
        if (r == i) continue;
        const double factor = m[r][i] / m[i][i];
        for (size_t c = i; c < 4; ++c) m[r][c] -= factor * m[i][c];
      }
    }
    return {m[0][3] / m[0][0], m[1][3] / m[1][1], m[2][3] / m[2][2]};
  }
  std::map<WorkerId, Sums> sums_;
  int round_ = 0;
};

// pfl-research 0.5 (Granqvist et al. 2024): clients by weight (rows), most first, each to the
// worker with the least rows so far; all workers count as equal.
class PflGreedy final : public Contestant {
 public:
  explicit PflGreedy(const std::vector<WorkerInfo>&) {}
  Plan Assign(const Cohort& cohort, const std::vector<WorkerInfo>& workers) override {
    Plan plan = StaticPlan(workers);
    std::vector<uint64_t> rows(workers.size());
    for (const CohortEntry& entry : MostRowsFirst(cohort)) {
      const auto s = static_cast<size_t>(std::ranges::min_element(rows) - rows.begin());
      rows[s] += entry.load;
      plan.queues[s].queue.push_back(entry);
    }
    return plan;
  }
  void Learn(const std::vector<VirtualTurn>&) override {}
};

template <typename T>
std::unique_ptr<Contestant> Make(const std::vector<WorkerInfo>& workers) {
  return std::make_unique<T>(workers);
}

}  // namespace

std::vector<Entrant> Entrants() {
  return {{.name = "array-split",
           .what = "equally many neighbours a slot (FedML before its scheduler starts)",
           .make = [](const std::vector<WorkerInfo>& workers) -> std::unique_ptr<Contestant> {
             return std::make_unique<Untaught<scheduler::UniformScheduler>>(
                 workers, scheduler::UniformScheduler());
           }},
          {.name = "random pull",
           .what = "random order, one client at a time to whoever is idle (FedScale)",
           .make = [](const std::vector<WorkerInfo>& workers) -> std::unique_ptr<Contestant> {
             return std::make_unique<Untaught<scheduler::RandomScheduler>>(
                 workers, scheduler::RandomScheduler(1));
           }},
          {.name = "Parrot window",
           .what = "lines over the last three times",
           .make = Make<Parrot<Memory::kWindow>>},
          {.name = "Parrot EMA",
           .what = "the same over its moving average",
           .make = Make<Parrot<Memory::kAverage>>},
          {.name = "Pollen", .what = "log-linear fit, least loaded first", .make = Make<Pollen>},
          {.name = "pfl greedy", .what = "fewest rows first", .make = Make<PflGreedy>},
          {.name = "longest_first",
           .what = "our estimator, plan never changed",
           .ours = true,
           .make = Make<Taught<scheduler::LongestFirstScheduler>>},
          {.name = "planned_stealing",
           .what = "our estimator, our default policy",
           .ours = true,
           .make = Make<Taught<scheduler::PlannedStealingScheduler>>}};
}

namespace {

struct Partial {
  std::vector<double> assignment;  // by client, −1: none yet
  std::vector<double> sums;        // by slot
};

void AssignOne(std::vector<Partial>& partials, const std::vector<double>& rows,
               const std::vector<std::pair<double, double>>& costs) {
  const auto largest = [](const Partial& partial) {
    return *std::ranges::max_element(partial.sums);
  };
  size_t best = 0;
  for (size_t i = 1; i < partials.size(); ++i) {
    if (largest(partials[i]) < largest(partials[best])) best = i;
  }
  const Partial chosen = partials[best];
  partials = {chosen};
  if (chosen.assignment.back() >= 0) return;
  size_t next = 0;
  while (chosen.assignment[next] >= 0) ++next;
  partials.clear();
  for (size_t s = 0; s < costs.size(); ++s) {
    Partial grown = chosen;
    grown.assignment[next] = static_cast<double>(s);
    grown.sums[s] += std::max(costs[s].first + costs[s].second * rows[next], 0.0);
    partials.push_back(std::move(grown));
  }
}

}  // namespace

ParrotTimed TimeParrotPlan(const std::vector<double>& rows,
                           const std::vector<std::pair<double, double>>& costs) {
  constexpr size_t kDepth = 10000;  // of Python's stack, as its code sets it
  if (rows.size() + 1 >= kDepth) return {.ends = false};
  const double start = ThreadSeconds();
  std::vector<Partial> partials = {{.assignment = std::vector<double>(rows.size(), -1),
                                    .sums = std::vector<double>(costs.size())}};
  // Each turn of this loop is one level of its recursion.
  for (size_t level = 0; level <= rows.size(); ++level) AssignOne(partials, rows, costs);
  return {.seconds = ThreadSeconds() - start};
}

}  // namespace macaw::bench
