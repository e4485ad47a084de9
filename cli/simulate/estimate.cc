#include "cli/simulate/estimate.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "aggregation/exact_sum.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/registry.h"
#include "cli/config/drawable.h"
#include "cli/config/resolve.h"
#include "cli/simulate/backend.h"
#include "cli/simulate/trial.h"
#include "core/status.h"
#include "core/vector.h"
#include "proto/fleet/vector_codec.h"
#include "server/budget.h"
#include "server/engine/timed_round.h"
#include "server/opening.h"

namespace macaw::cli {
namespace {

uint64_t BytesOfLayouts(const std::vector<algorithms::NamedLayout>& items) {
  uint64_t bytes = 0;
  for (const algorithms::NamedLayout& item : items) bytes += item.layout->bytes();
  return bytes;
}

// The weights of a round of this plan.
aggregation::GridOrder GridOfRound(const RunPlan& run, const std::vector<PlannedTurn>& turns) {
  aggregation::GridOrder grid{.total_weight = 0, .total_multiplicity = 0};
  for (const PlannedTurn& turn : turns) {
    const double weight = run.cohort.weight == WeightPolicy::kUniform
                              ? 1.0
                              : static_cast<double>(CountedOf(run.cohort, turn.examples));
    grid.max_weight = std::max(grid.max_weight, weight);
    grid.total_weight += weight;
    ++grid.total_multiplicity;
  }
  grid.total_weight = std::max(grid.total_weight, grid.max_weight);
  grid.total_multiplicity = std::max<uint64_t>(grid.total_multiplicity, 1);
  return grid;
}

// What the sums of a round take: the largest of its phases, and a client's own part in all of them.
struct SumBytes {
  uint64_t largest = 0, client = 0;
};
absl::StatusOr<SumBytes> SumsOf(const algorithms::Schema& schema,
                                const aggregation::GridOrder& grid) {
  std::set<uint32_t> phases = {0};
  for (const aggregation::ChannelSpec& channel : schema.up) {
    for (const Phase phase : channel.phases) phases.insert(phase.value);
  }
  SumBytes sums;
  for (const uint32_t phase : phases) {
    const std::vector<aggregation::ChannelSpec> channels =
        algorithms::UpChannels(schema, Phase(phase));
    MACAW_ASSIGN_OR_RETURN(const uint64_t bytes,
                           aggregation::ExactSum::MostEncodedBytes(channels, grid));
    sums.largest = std::max(sums.largest, bytes);
    MACAW_ASSIGN_OR_RETURN(const aggregation::ExactSum sum,
                           aggregation::ExactSum::Make(channels, grid));
    sums.client += sum.MostBytesAlone();
  }
  return sums;
}

// A model whose numbers differ: a rule with several models refuses those that begin equal.
FlatVector SomeModel(const LayoutPtr& layout) {
  FlatVector model(layout);
  DispatchDType(layout->dtype(), [&]<typename T>(T) {
    const std::span<T> numbers = model.As<T>();
    std::iota(numbers.begin(), numbers.end(), T{0});
  });
  return model;
}

absl::StatusOr<uint64_t> ServerStateOf(const algorithms::Description& rule,
                                       const algorithms::Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<algorithms::ServerAlgorithm> server,
                         rule.server(setup, SomeModel(setup.layout)));
  uint64_t bytes = 0;
  for (const auto& [name, vector] : server->Save().vectors) bytes += vector.layout()->bytes();
  return bytes;
}

// A few clients, and as many as the rule needs. Where all clients take part, [update] may keep
// other residuals, and [broadcast] send another vector, than where they are drawn, so all of them
// do in the trial, too.
uint64_t CohortOfTrial(const Config& config, const LayoutPtr& layout,
                       const algorithms::Registry& registry, uint64_t wanted) {
  const uint64_t whole = config.run.cohort.size;
  const bool coded = config.run.update.on() || config.run.broadcast.on();
  if (coded && whole >= TrainClients(config.run)) return whole;
  for (uint64_t cohort = std::min(std::max<uint64_t>(wanted, 1), whole); cohort < whole;
       cohort = std::min(2 * cohort, whole)) {
    const Config trial = TrialConfig(config, {.cohort = cohort});
    if (server::CheckPlan(trial.run, trial.node.server, layout, registry).ok()) return cohort;
  }
  return whole;
}

// The last round is always evaluated; a run without rounds evaluates its first model. Models
// without a client are evaluations, too, where there is a central test set for them.
uint64_t EvaluationsOf(const RunPlan& run, uint32_t rounds, uint64_t central_rows) {
  const uint32_t every = run.evaluation.every, one_out = run.evaluation.leave_one_out;
  uint64_t evaluated = every == 0 || rounds == 0 ? 1 : (uint64_t{rounds} + every - 1) / every;
  if (one_out > 0) {  // rounds that are evaluated for the clients' sake
    for (uint64_t round = one_out; round < rounds; round += one_out)
      evaluated += every == 0 || round % every != 0 ? 1 : 0;
  }
  if (!run.evaluation.test || !run.evaluation.central || central_rows == 0) return evaluated;
  const uint64_t cohort = scheduler::SizeOfRounds(run.cohort, TrainClients(run)).most;
  const uint64_t without = one_out > 0 ? rounds / one_out * cohort : 0;
  return evaluated * (1 + run.evaluation.unlearn.size()) + without;
}

// How the run is tried.
class Trials {
 public:
  Trials(const CheckedForEstimate& run, const sdk::Catalogue& catalogue,
         const std::vector<uint32_t>& rows, const ClientDevices& devices)
      : run_(run), catalogue_(catalogue), rows_(rows), devices_(devices) {}

  // Whole turns of a few clients; where a round of those takes longer than a trial may, turns of
  // fewer steps. Then as many clients as the first trial says there is time for.
  absl::StatusOr<Trial> Make(CostEstimate& estimate) const {
    const uint64_t slots = std::max(estimate.basis.slots, 1U);
    std::vector<TrialOptions> attempts = {{.cohort = std::max<uint64_t>(2 * slots, 4)}};
    const auto mean = static_cast<uint32_t>(
        std::min(estimate.work.steps / std::max(estimate.work.turns, 1.0), 1e9));
    constexpr uint32_t kFewSteps = 50;
    if (!estimate.own_steps && mean > 2 * kFewSteps)
      attempts.push_back({.cohort = slots, .steps = kFewSteps});
    if (!estimate.own_steps && mean > 1) attempts.push_back({.cohort = slots, .steps = 1});
    for (const TrialOptions& attempt : attempts) {
      MACAW_ASSIGN_OR_RETURN(Trial trial, Run(attempt, kFirstSeconds, estimate));
      if (trial.rounds.empty()) continue;
      const uint64_t larger = CohortInTime(trial, estimate.basis.slots);
      if (attempt.steps > 0 || larger < 2 * estimate.basis.cohort) return trial;
      MACAW_ASSIGN_OR_RETURN(Trial second, Run({.cohort = larger}, kEnoughSeconds, estimate));
      return second.rounds.empty() ? std::move(trial) : std::move(second);
    }
    return Trial();
  }

 private:
  static constexpr double kFirstSeconds = 1, kEnoughSeconds = 3, kLimitSeconds = 8;

  absl::StatusOr<Trial> Run(TrialOptions options, double seconds, CostEstimate& estimate) const {
    options.cohort =
        CohortOfTrial(run_.config, run_.spec.layout, catalogue_.algorithms(), options.cohort);
    options.stateful = run_.stateful;
    options.devices = devices_;
    options.layout = run_.spec.layout;
    options.enough = FromSeconds(seconds + run_.opened_in);
    options.limit = FromSeconds(kLimitSeconds + 3 * run_.opened_in);
    MACAW_ASSIGN_OR_RETURN(Trial trial,
                           Try(run_.config, catalogue_, options, rows_, run_.script_values));
    if (trial.rounds.empty()) return trial;
    estimate.basis.rounds = trial.rounds.size();
    estimate.basis.cohort = options.cohort;
    estimate.basis.turns = trial.clients();
    estimate.basis.steps = options.steps;
    return trial;
  }

  // The clients of a round of half a second, but not more than the run has.
  uint64_t CohortInTime(const Trial& trial, uint32_t slots) const {
    constexpr double kRound = 0.5, kLongStart = 2;
    double turn = 0;
    for (const TimedTurn& timed : trial.turns)
      turn += timed.seconds / static_cast<double>(trial.turns.size());
    const double left = kRound - trial.Overhead();
    if (turn <= 0 || left <= 0 || trial.start > kLongStart) return 0;
    return static_cast<uint64_t>(
        std::min(left / turn * slots, static_cast<double>(run_.config.run.cohort.size)));
  }

  const CheckedForEstimate& run_;
  const sdk::Catalogue& catalogue_;
  const std::vector<uint32_t>& rows_;
  const ClientDevices& devices_;
};

// The owners of a simulation train their own client; the workers' slots take the others.
double RoundOf(const std::vector<PlannedTurn>& turns, const TurnCost& cost,
               const worker::WorkersConfig& workers, uint32_t slots) {
  double owners = 0;
  std::vector<double> others;
  for (const PlannedTurn& turn : turns) {
    const double seconds = cost.Of(turn.passed);
    if (turn.client.value < workers.owners) {
      owners = std::max(owners, seconds);
    } else {
      others.push_back(seconds);
    }
  }
  return std::max(owners, LongestFirst(std::move(others), slots - workers.owners));
}

CostEstimate::Seconds SecondsOf(const Trial& trial, const TurnPlan& plan,
                                const CostEstimate& estimate, const CheckedForEstimate& run) {
  const Config& config = run.config;
  const TurnCost cost = FitTurns(trial.turns);
  double rounds = 0;
  for (const PlannedWork::Example& one : estimate.work.examples) {
    rounds += RoundOf(plan.At(one.round, one.clock).turns, cost, config.node.workers,
                      estimate.basis.slots);
  }
  CostEstimate::Seconds seconds{
      .start = trial.start,
      .round = trial.Overhead() +
               rounds / static_cast<double>(std::max<size_t>(estimate.work.examples.size(), 1)),
      .evaluation = trial.Evaluation(),
      .evaluations = EvaluationsOf(config.run, estimate.rounds, run.dataset.info().test_examples)};
  seconds.run = seconds.start + seconds.round * estimate.rounds +
                seconds.evaluation.value_or(0) * static_cast<double>(seconds.evaluations);
  return seconds;
}

// Bytes down in some of the trial's rounds.
double PerDrawnClient(const Trial& trial, size_t begin, size_t count = SIZE_MAX) {
  double bytes = 0;
  uint64_t drawn = 0;
  for (size_t i = begin; i < trial.rounds.size() && i - begin < count; ++i) {
    bytes += trial.rounds[i].bytes_down;
    drawn += trial.rounds[i].drawn;
  }
  return bytes / static_cast<double>(std::max<uint64_t>(drawn, 1));
}

// The first round is like no other where [broadcast] sends changes: it sends the model.
CostEstimate::Bytes DownOf(const Trial& trial, const CostEstimate& estimate) {
  const double first = PerDrawnClient(trial, 0, 1);
  const double later = PerDrawnClient(trial, trial.rounds.size() / 2);
  const double a_round = estimate.work.turns / std::max<double>(estimate.rounds, 1);
  const double run = later * estimate.work.turns + (first - later) * a_round;
  return {.client = estimate.work.turns > 0 ? run / estimate.work.turns : 0, .run = run};
}

void AddTrial(const Trial& trial, const TurnPlan& plan, const CheckedForEstimate& run,
              CostEstimate& estimate) {
  if (trial.clients() == 0) {
    estimate.virtual_seconds = estimate.work.virtual_seconds;
    return;
  }
  const double up = trial.PerClient(&TriedRound::bytes_up);
  if (plan.timed()) {
    // Who is in time, and when, follows from the bytes of a turn.
    const virtual_time::Traffic traffic = {.down = PerDrawnClient(trial, trial.rounds.size() / 2),
                                           .up = up};
    estimate.work = WorkOfRun(plan, estimate.rounds, traffic);
    estimate.steps = estimate.work.steps;
    estimate.virtual_seconds = estimate.work.virtual_seconds;
  }
  double steps = 0;
  for (const TriedRound& round : trial.rounds) steps += round.steps;
  // A rule may take more steps than [local] says, as for a second model.
  if (estimate.own_steps) {
    estimate.steps = steps / static_cast<double>(trial.clients()) * estimate.work.turns;
  } else if (trial.planned_steps > 0) {
    estimate.steps *= steps / trial.planned_steps;
  }
  estimate.up = {.client = up, .run = up * estimate.work.turns};
  estimate.down = DownOf(trial, estimate);
  estimate.memory.server_peak = trial.server_memory;
  estimate.memory.worker_peak = trial.worker_memory;
  estimate.seconds = SecondsOf(trial, plan, estimate, run);
}

}  // namespace

absl::StatusOr<CostEstimate> EstimateCost(const CheckedForEstimate& run,
                                          const sdk::Catalogue& catalogue) {
  const Config& config = run.config;
  const worker::WorkersConfig& workers = config.node.workers;
  CostEstimate estimate{
      .rounds = config.run.rounds,
      .population = TrainClients(config.run),
      .cohort = scheduler::SizeOfRounds(config.run.cohort, TrainClients(config.run))};
  if (LearnsFromRounds(config.run.cohort)) estimate.learns = config.run.cohort.sampling;
  MACAW_ASSIGN_OR_RETURN(const std::optional<server::Budget> budget,
                         server::BudgetOf(config.node.server.stop, config.run));
  if (budget.has_value()) estimate.rounds = budget->rounds;
  estimate.may_stop =
      config.node.server.budget.on() || (config.node.server.stop.active() && !budget.has_value());

  const MatchedBy matched = workers.owners > 0 ? MatchedBy::kNumber : MatchedBy::kName;
  const std::vector<uint32_t> rows = DrawableRows(config.run, run.dataset, matched);
  MACAW_ASSIGN_OR_RETURN(const ClientDevices devices, OpenClientDevices(config, run.dataset));
  MACAW_ASSIGN_OR_RETURN(RowsOfTurn passes,
                         PassesOf(config.run, catalogue.algorithms(), run.spec.layout));
  MACAW_ASSIGN_OR_RETURN(
      const TurnPlan plan,
      TurnPlan::Make(config.run, rows, devices, server::FirstTraffic(config.run, *run.spec.layout),
                     std::move(passes)));
  estimate.work = WorkOfRun(plan, estimate.rounds);
  estimate.steps = estimate.work.steps;

  MACAW_ASSIGN_OR_RETURN(const algorithms::Description rule,
                         catalogue.algorithms().RuleOf(config.run));
  const algorithms::Setup setup = algorithms::SetupOf(config.run, run.spec.layout);
  MACAW_ASSIGN_OR_RETURN(const algorithms::Schema schema, algorithms::MakeSchema(rule, setup));
  estimate.memory.model = run.spec.layout->bytes();
  MACAW_ASSIGN_OR_RETURN(estimate.memory.server, ServerStateOf(rule, setup));
  MACAW_ASSIGN_OR_RETURN(const SumBytes sums,
                         SumsOf(schema, GridOfRound(config.run, plan.Of(Round(1)))));
  estimate.memory.sums = sums.largest;
  if (config.run.evaluation.leave_one_out > 0) {
    const uint64_t model = algorithms::SentModelLayout(schema)->bytes();
    estimate.memory.one_out =
        estimate.cohort.most * (sums.largest + model) + estimate.memory.server;
  }
  if (const uint64_t clients = config.run.evaluation.unlearn.size(); clients > 0) {
    const uint64_t model = algorithms::SentModelLayout(schema)->bytes();
    estimate.memory.unlearn =
        clients * (estimate.memory.server + sums.largest + model) + sums.largest;
  }
  if (schema.parts != nullptr) estimate.base = fleet::EncodedBytes(*schema.parts->base.layout());
  if (!config.run.update.on()) estimate.most_up = sums.client;
  estimate.own_steps = std::ranges::find(rule.ignores, "local.steps") != rule.ignores.end();
  estimate.states.client = BytesOfLayouts(schema.state);
  if (estimate.work.clients.has_value())
    estimate.states.all = estimate.states.client * *estimate.work.clients;

  estimate.basis.slots = workers.processes * SlotsHere(config) + workers.owners;
  MACAW_ASSIGN_OR_RETURN(const Trial trial, Trials(run, catalogue, rows, devices).Make(estimate));
  AddTrial(trial, plan, run, estimate);

  if (config.run.privacy.on()) {
    estimate.epsilon = server::EpsilonOf(config.run, estimate.rounds);
    estimate.delta = config.run.privacy.delta;
  }
  return estimate;
}

}  // namespace macaw::cli
