// Schedulers side by side in virtual time: how much longer a round takes than the lower bound, for
// ours and for those of other systems, on the same clients, the same noise and the same slots. Also
// what planning and learning cost. Everything but those last times is a function of the seed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bench/frame.h"
#include "bench/scheduler/contestants.h"
#include "bench/scheduler/worlds.h"
#include "core/random.h"
#include "core/status.h"
#include "plan/run_plan.h"
#include "scheduler/cohort.h"
#include "scheduler/estimator.h"
#include "scheduler/policies/policies.h"
#include "testing/bound.h"
#include "testing/virtual_round.h"

namespace macaw::bench {
namespace {

struct Cell {
  double mean = 0, half_width = 0;  // of the mean's 95 % confidence interval
  double p95 = 0;
};

Cell Summarise(std::vector<double> ratios) {
  std::ranges::sort(ratios);
  const auto n = static_cast<double>(ratios.size());
  double sum = 0, squares = 0;
  for (const double ratio : ratios) {
    sum += ratio;
    squares += ratio * ratio;
  }
  const double mean = sum / n;
  const double variance = std::max(squares / n - mean * mean, 0.0) * n / (n - 1);
  const auto at = [&](double rank) {
    return ratios[static_cast<size_t>(std::clamp(std::ceil(rank) - 1, 0.0, n - 1))];
  };
  return {.mean = mean, .half_width = 1.96 * std::sqrt(variance / n), .p95 = at(0.95 * n)};
}

struct Row {
  World world;
  std::vector<Cell> cells;       // parallel to the entrants
  double one_client_bounds = 0;  // part of the rounds where a single client is the bound
};

// Runs one world: every entrant meets the same cohorts, works and speeds.
absl::StatusOr<Row> RunWorld(const World& world, const std::vector<uint32_t>& sizes,
                             const std::vector<Entrant>& entrants) {
  const uint64_t cohort_size = std::min<uint64_t>(world.cohort(), sizes.size());
  auto sampler = scheduler::MakeSampler({.size = cohort_size, .seed = kSeed}, sizes);
  if (!sampler.ok()) return sampler.status();
  std::vector<scheduler::WorkerInfo> infos;
  std::vector<scheduler::VirtualWorker> workers;
  for (size_t s = 0; s < world.speeds.size(); ++s) {
    infos.push_back({.worker = WorkerId(static_cast<uint32_t>(s + 1))});
    workers.push_back({.worker = infos.back().worker});
  }
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (const Entrant& entrant : entrants) contestants.push_back(entrant.make(infos));
  std::vector<std::vector<double>> ratios(entrants.size());
  Row row{.world = world};
  for (uint32_t r = 1; r <= world.warmup + world.rounds; ++r) {
    scheduler::Cohort cohort = (*sampler)->Sample(Round(r));
    std::vector<double> works, speeds;
    std::map<ClientId, double> work;
    for (scheduler::CohortEntry& entry : cohort.entries) {
      entry.steps = (entry.load + 9) / 10;
      works.push_back(WorkOf(world, static_cast<uint32_t>(entry.load), Round(r), entry.client));
      work[entry.client] = works.back();
    }
    for (size_t s = 0; s < world.speeds.size(); ++s) speeds.push_back(SpeedOf(world, s, r));
    const scheduler::Bound bound = scheduler::LowerBound(works, speeds);
    const scheduler::VirtualOptions options = {
        .seconds = [&](const scheduler::CohortEntry& entry, WorkerId worker, uint32_t,
                       double) { return work[entry.client] / speeds[worker.value - 1]; },
        .latency = kLatency,
        .least_seconds = 0.002};
    for (size_t e = 0; e < entrants.size(); ++e) {
      const scheduler::VirtualOutcome outcome =
          RunVirtualRound(contestants[e]->Assign(cohort, infos), workers, options);
      if (outcome.turns.size() != cohort.entries.size())
        return absl::InternalError(absl::StrCat(entrants[e].name, " lost clients"));
      contestants[e]->Learn(outcome.turns);
      if (r > world.warmup) ratios[e].push_back(outcome.makespan / bound.seconds);
    }
    if (r > world.warmup && bound.one_client) row.one_client_bounds += 1.0 / world.rounds;
  }
  for (std::vector<double>& values : ratios) row.cells.push_back(Summarise(std::move(values)));
  return row;
}

scheduler::Cohort MakeCohort(size_t clients) {
  RandomStream stream({.seed = kSeed, .purpose = Purpose::kTest});
  scheduler::Cohort cohort{.round = Round(1)};
  for (size_t i = 0; i < clients; ++i) {
    const auto rows = static_cast<uint64_t>(1 + 100 * std::exp(stream.Normal() - 0.5));
    cohort.entries.push_back({.client = ClientId(i), .load = rows, .steps = (rows + 9) / 10});
  }
  return cohort;
}

// Of the processor, as the machine may be busy. Slots of as many speeds as there are slots.
std::string TimePlanners() {
  std::string out;
  for (const auto& [clients, slots] :
       {std::pair<size_t, size_t>{4000, 32}, {10000, 64}, {100000, 1000}}) {
    const scheduler::Cohort cohort = MakeCohort(clients);
    std::vector<scheduler::WorkerInfo> workers;
    std::vector<std::pair<double, double>> costs;
    std::vector<double> rows;
    for (size_t s = 0; s < slots; ++s) {
      const double factor = 1 + 0.25 * static_cast<double>(s % 7) + 1e-6 * static_cast<double>(s);
      workers.push_back({.worker = WorkerId(static_cast<uint32_t>(s + 1)),
                         .costs = {.fixed = kFixedSeconds * factor, .row = kRowSeconds * factor}});
      costs.emplace_back(kFixedSeconds * factor, kRowSeconds * factor);
    }
    for (const scheduler::CohortEntry& entry : cohort.entries)
      rows.push_back(static_cast<double>(entry.load));
    std::ranges::sort(rows, std::greater<>());
    const double best = Shortest([&] {
      const scheduler::Plan plan = scheduler::PlannedStealingScheduler().Assign(cohort, workers);
      if (plan.queues.size() != workers.size()) std::abort();
    });
    std::string parrot = "not run";
    if (clients <= 10000) {
      const ParrotTimed timed = TimeParrotPlan(rows, costs);
      parrot = timed.ends ? absl::StrFormat("%.2f s", timed.seconds)
                          : "exceeds Python's recursion limit as it sets it";
    }
    absl::StrAppendFormat(&out, "| plan of %d clients on %d slots | %.2f ms | %s |\n", clients,
                          slots, best * 1e3, parrot);
  }
  // A million times on 32 workers in 100 rounds.
  scheduler::Estimator estimator;
  for (uint32_t w = 1; w <= 32; ++w) estimator.AddWorker(WorkerId(w), "slot");
  const scheduler::Cohort cohort = MakeCohort(10000);
  const double start = ThreadSeconds();
  for (int round = 0; round < 100; ++round) {
    for (size_t i = 0; i < cohort.entries.size(); ++i) {
      const scheduler::CohortEntry& entry = cohort.entries[i];
      estimator.Observe(
          WorkerId(static_cast<uint32_t>(i % 32 + 1)), entry,
          {.load_seconds = 1e-5 * static_cast<double>(entry.load),
           .train_seconds = kFixedSeconds + kRowSeconds * static_cast<double>(entry.load)});
    }
    estimator.EndRound();
  }
  absl::StrAppendFormat(&out, "| estimator, a million times in 100 rounds | %.2f s in all | – |\n",
                        ThreadSeconds() - start);
  return out;
}

std::string Table(const std::vector<Row>& rows, const std::vector<Entrant>& entrants) {
  std::string out = "| sizes, slots, clients a slot, noise |";
  for (const Entrant& entrant : entrants) absl::StrAppend(&out, " ", entrant.name, " |");
  absl::StrAppend(&out, " one client is the bound |\n|---|");
  for (size_t e = 0; e <= entrants.size(); ++e) absl::StrAppend(&out, "---|");
  absl::StrAppend(&out, "\n");
  for (const Row& row : rows) {
    double best = INFINITY;
    for (const Cell& cell : row.cells) best = std::min(best, cell.mean);
    absl::StrAppend(&out, "| ", row.world.name(), " |");
    for (const Cell& cell : row.cells) {
      const char* mark = cell.mean <= best * 1.005 ? "**" : "";
      absl::StrAppendFormat(&out, " %s%.3f%s ±%.3f, %.3f |", mark, cell.mean, mark, cell.half_width,
                            cell.p95);
    }
    absl::StrAppendFormat(&out, " %.0f %% |\n", 100 * row.one_client_bounds);
  }
  return out;
}

// Where ours is not the best, or above the goal.
std::string Verdict(const std::vector<Row>& rows, const std::vector<Entrant>& entrants) {
  size_t best_cells = 0, goal_cells = 0, goal_met = 0;
  std::string worse, above;
  for (const Row& row : rows) {
    const double ours = row.cells.back().mean;
    double others = INFINITY;
    size_t which = 0;
    for (size_t e = 0; e + 1 < entrants.size(); ++e) {
      if (row.cells[e].mean < others) {
        others = row.cells[e].mean;
        which = e;
      }
    }
    if (ours <= others * 1.005) {
      ++best_cells;
    } else {
      absl::StrAppendFormat(&worse, "- %s: %.3f, %s %.3f\n", row.world.name(), ours,
                            entrants[which].name, others);
    }
    if (std::abs(row.world.noise - 0.3) > 1e-9) continue;
    ++goal_cells;
    if (ours <= 1.03) {
      ++goal_met;
    } else {
      absl::StrAppendFormat(&above,
                            "- %s: %.3f; one client is the bound in %.0f %% of the rounds\n",
                            row.world.name(), ours, 100 * row.one_client_bounds);
    }
  }
  return absl::StrCat("planned_stealing is best (ties within 0.5 %) in ", best_cells, " of ",
                      rows.size(), " cells.", worse.empty() ? "" : " Not in:\n", worse,
                      "\nAt 30 % noise its mean is at most 1.03 in ", goal_met, " of ", goal_cells,
                      " cells.", above.empty() ? "" : " Above:\n", above, "\n");
}

struct Told {
  std::string out = "runs/scheduler", only;
  uint32_t rounds = 200;
  bool times = true;
};

// Nothing: an argument that there is not.
std::optional<Told> Read(int count, char** arguments) {
  Told told;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--out" && i + 1 < count) {
      told.out = arguments[++i];
    } else if (argument == "--only" && i + 1 < count) {
      told.only = arguments[++i];
    } else if (argument == "--rounds" && i + 1 < count) {
      told.rounds = static_cast<uint32_t>(std::max(std::atoi(arguments[++i]), 2));
    } else if (argument == "--no-times") {
      told.times = false;
    } else {
      return std::nullopt;
    }
  }
  return told;
}

// Runs all worlds whose names contain `only`, and prints a line for each.
absl::StatusOr<std::vector<Row>> RunWorlds(const Told& told, const std::vector<Entrant>& entrants) {
  const std::string speakers = absl::StrCat(MACAW_SOURCE_DIR, "/bench/scheduler/speakers.txt");
  std::map<std::string, std::vector<uint32_t>> sizes;
  std::vector<Row> rows;
  for (World world : AllWorlds()) {
    if (!told.only.empty() && world.name().find(told.only) == std::string::npos) continue;
    world.rounds = told.rounds;
    if (!sizes.contains(world.sizes)) {
      MACAW_ASSIGN_OR_RETURN(sizes[world.sizes], MakeSizes(world.sizes, speakers));
    }
    MACAW_ASSIGN_OR_RETURN(Row row, RunWorld(world, sizes[world.sizes], entrants));
    std::printf("%-52s", world.name().c_str());
    for (const Cell& cell : row.cells) std::printf(" %6.3f", cell.mean);
    std::printf("\n");
    std::fflush(stdout);
    rows.push_back(std::move(row));
  }
  return rows;
}

int Main(int count, char** arguments) {
  const std::optional<Told> told = Read(count, arguments);
  if (!told.has_value()) {
    std::fprintf(stderr,
                 "usage: bench_scheduler [--out PREFIX] [--only TEXT IN A CELL'S NAME] "
                 "[--rounds N] [--no-times]\n");
    return 2;
  }
  const std::vector<Entrant> entrants = Entrants();
  const absl::StatusOr<std::vector<Row>> rows = RunWorlds(*told, entrants);
  if (!rows.ok()) {
    std::fprintf(stderr, "%s\n", std::string(rows.status().message()).c_str());
    return 1;
  }
  std::string text = absl::StrCat(
      "Makespan ÷ lower bound over ", told->rounds, " rounds, seed ", kSeed,
      ": **mean** ± 95 % confidence, 95th percentile; bold: best or within 0.5 % of it.\n\n",
      Table(*rows, entrants), "\n", Verdict(*rows, entrants));
  if (told->times) {
    absl::StrAppend(&text, "| | ours | Parrot's, rewritten in C++ |\n|---|---|---|\n",
                    TimePlanners());
  }
  std::ofstream(told->out + ".md") << text;
  std::printf("\n%s", text.substr(text.find("planned_stealing is best")).c_str());
  return 0;
}

}  // namespace
}  // namespace macaw::bench

int main(int count, char** arguments) {
  macaw::bench::PrintHeading(count, arguments);
  return macaw::bench::Main(count, arguments);
}
