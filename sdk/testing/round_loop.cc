#include "sdk/testing/round_loop.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregation/exact_sum.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/local_work.h"
#include "algorithms/builtin.h"
#include "core/random.h"
#include "core/status.h"
#include "sdk/loader.h"
#include "training/api/round_local.h"
#include "training/api/straggler.h"

namespace macaw::algorithms {
namespace {

// For errors in the test itself: prints the message and aborts.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << std::endl;
    std::abort();
  }
  return *std::move(value);
}

}  // namespace

std::vector<TestPopulationClient> Q4() {
  using A = std::array<std::array<double, 2>, 2>;
  using B = std::array<double, 2>;
  const auto client = [](A a, B b, uint32_t examples) {
    return TestPopulationClient{std::make_shared<Quadratic>(a, b), examples};
  };
  return {client({{{2, .3}, {.3, 1}}}, {1, 2}, 1), client({{{1, -.2}, {-.2, .5}}}, {-3, 1}, 2),
          client({{{3, 0}, {0, .7}}}, {.5, -2}, 3), client({{{.6, .1}, {.1, 2}}}, {2, 4}, 4)};
}

const Numbers& Q4Optimum() {
  static const Numbers& optimum = *new Numbers{.407946308724832, 2.725422818791946};
  return optimum;
}

const Numbers& Q4UniformOptimum() {
  static const Numbers& optimum = *new Numbers{.305635838150289, 2.414017341040462};
  return optimum;
}

double Distance(const Numbers& a, const Numbers& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    // NaN counts as infinitely far.
    if (!(std::fabs(a[i] - b[i]) <= largest)) largest = std::fabs(a[i] - b[i]);
  }
  return std::isnan(largest) ? INFINITY : largest;
}

Description Builtin(const std::string& name) {
  Registry registry;
  registry.AddBuiltin(BuiltinAlgorithms());
  return *Must(registry.Find(name));
}

absl::StatusOr<Description> OfPlugin(const std::string& library, const std::string& name) {
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, sdk::LoadAll({library}));
  MACAW_ASSIGN_OR_RETURN(const Description* found, catalogue.algorithms().Find(name));
  return *found;
}

RoundLoop::RoundLoop(const Description& description, std::vector<TestPopulationClient> population,
                     const Options& options)
    : population_(std::move(population)) {
  Registry registry;
  if (!registry.Add(description).ok()) std::abort();
  const Description& rule = **registry.Find(description.name);  // guarded
  setup_.config = Must(registry.Complete({description.name, options.parameters}));
  setup_.layout = options.layout != nullptr
                      ? options.layout
                      : Plain(static_cast<int64_t>(options.start.size()), options.dtype);
  setup_.local.steps = options.steps;
  setup_.local.epochs = options.epochs;
  setup_.local.lr = options.lr;
  setup_.local.momentum = options.momentum;
  setup_.local.weight_decay = options.weight_decay;
  setup_.local.clip_norm = options.clip_norm;
  setup_.local.lr_schedule = options.lr_schedule;
  setup_.local.qsr = options.qsr;
  setup_.cohort = options.cohort;
  setup_.clients = population_.size();
  for (const TestPopulationClient& client : population_) setup_.total_weight += client.examples;
  trainer_ = std::make_unique<PlainTrainer>(setup_.layout);
  setup_.seed = options.seed;
  setup_.asynchronous = options.asynchronous;
  schema_ = Must(SchemaOf(rule, setup_));
  FlatVector model(setup_.layout);
  SetNumbers(options.start, model.view());
  if (schema_.parts != nullptr) {
    base_ = FlatVector(schema_.parts->base.layout());
    schema_.parts->base.Extract(model.view(), base_.view());
  }
  server_ = Must(rule.server(setup_, std::move(model)));
  client_ = Must(rule.client(setup_));
  passes_ = RowsOfTurnOf(rule, setup_);
  states_.resize(population_.size());
  for (const NamedLayout& item : schema_.state) zero_state_.emplace_back(item.layout);
}

FlatVector RoundLoop::Whole(ConstVectorView sent) const {
  if (schema_.parts == nullptr) return FlatVector::CopyOf(sent, setup_.layout);
  return schema_.parts->Join(sent, base_.view());
}

ServerContext RoundLoop::About(Phase phase) {
  return {.round = macaw::Round(round_),
          .phase = phase,
          .seed = setup_.seed,
          .metrics = &metrics_,
          .schema = &schema_};
}

uint64_t RoundLoop::RowsOf(size_t client) const {
  return uint64_t{setup_.local.batch_size} * population_[client].examples;
}

ClientContext RoundLoop::Context(size_t client, const std::vector<FlatVector>& kept,
                                 std::span<const ConstVectorView> broadcast, uint32_t staleness) {
  state_views_.clear();
  for (const FlatVector& vector : kept.empty() ? zero_state_ : kept)
    state_views_.push_back(vector.view());
  ClientContext context;
  context.round = macaw::Round(round_);
  context.client = ClientId(client);
  context.examples = population_[client].examples;
  context.weight = population_[client].examples;
  // PlainTrainer takes a step an example.
  const uint64_t rows = RowsOf(client);
  const macaw::Round work(round_ - staleness);
  context.local = training::WorkOf(setup_.cohort, training::RoundLocal(setup_.local, work), work,
                                   context.client, rows);
  context.staleness = staleness;
  if (population_[client].steps > 0) context.local.steps = population_[client].steps;
  context.broadcast = broadcast;
  context.state = state_views_;
  context.first_turn = kept.empty();
  context.seed = setup_.seed;
  context.schema = &schema_;
  return context;
}

std::vector<RoundLoop::Turn> RoundLoop::TurnsOf(const std::vector<size_t>& cohort) {
  std::vector<Turn> turns;
  for (const size_t client : cohort) {
    const auto known = std::ranges::find(turns, client, &Turn::client);
    if (known == turns.end()) {
      turns.push_back({client, 1});
    } else {
      ++known->multiplicity;
    }
  }
  return turns;
}

absl::Status RoundLoop::Round(const std::vector<size_t>& cohort, const std::set<size_t>& lost,
                              const std::map<size_t, uint32_t>& staleness) {
  for (const auto& [client, age] : staleness) {
    if (age == 0) continue;
    if (!setup_.asynchronous) {
      return absl::InvalidArgumentError(absl::StrCat("client ", client, " began ", age,
                                                     " rounds before: set Options::asynchronous"));
    }
    if (age > round_) {
      return absl::InvalidArgumentError(absl::StrCat("client ", client, " began ", age,
                                                     " rounds before, and there were ", round_));
    }
  }
  ++round_;
  if (setup_.asynchronous)
    models_.push_back(FlatVector::CopyOf(server_->Model(), SentModelLayout(schema_)));
  const auto staleness_of = [&](size_t client) {
    const auto found = staleness.find(client);
    return found == staleness.end() ? 0 : found->second;
  };
  const auto began_from = [&](uint32_t age) { return models_[round_ - 1 - age].view(); };
  const std::vector<Turn> turns = TurnsOf(cohort);
  aggregation::GridOrder order{.total_multiplicity = std::max<size_t>(1, cohort.size())};
  for (const auto& [client, multiplicity] : turns) {
    const double weight = multiplicity * population_[client].examples;
    order.max_weight = std::max(order.max_weight, weight);
    order.max_multiplicity = std::max(order.max_multiplicity, multiplicity);
    order.total_weight += weight;
  }
  metrics_.clear();
  passed_.clear();
  said_.clear();
  std::map<size_t, std::vector<FlatVector>> staged;  // the states that the round's phases kept
  for (uint8_t number = 0;; ++number) {
    const Phase phase(number);
    phases_ = number + 1;
    ServerContext asked = About(phase);
    if (cohort.size() == 1 && staleness_of(cohort[0]) > 0) {
      asked.staleness = staleness_of(cohort[0]);
      asked.base = began_from(asked.staleness);
    }
    MACAW_ASSIGN_OR_RETURN(const Broadcast configured, server_->Configure(asked));
    MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> sent,
                           DownViews(schema_, phase, configured));
    std::vector<ConstVectorView> broadcast = ParallelToDown(schema_, phase, sent);
    FlatVector newest, older;  // whole models
    const auto whole = [&](ConstVectorView model, FlatVector& keep) {
      if (schema_.parts == nullptr) return model;
      keep = Whole(model);
      return std::as_const(keep).view();
    };
    broadcast[0] = whole(broadcast[0], newest);
    MACAW_ASSIGN_OR_RETURN(aggregation::ExactSum sum,
                           aggregation::ExactSum::Make(UpChannels(schema_, phase), order));
    for (const Turn& turn : turns) {
      const size_t client = turn.client;
      workspace_.Reset();
      const auto kept = staged.find(client);
      const uint32_t age = staleness_of(client);
      std::vector<ConstVectorView> received = broadcast;
      if (age > 0) received[0] = whole(std::as_const(models_[round_ - 1 - age]).view(), older);
      ClientContext context =
          Context(client, kept == staged.end() ? states_[client] : kept->second, received, age);
      context.phase = phase;
      const auto run = [&](const training::LocalPlan& plan) {
        return trainer_->Run(plan, *population_[client].objective, context.examples,
                             RowsOf(client));
      };
      MACAW_ASSIGN_OR_RETURN(const LocalWork work, CarryOut(*client_, context, workspace_, run));
      passed_[client] += trainer_->passed();
      said_[client] = passes_(
          {.round = macaw::Round(round_ - age), .local = context.local, .rows = RowsOf(client)});
      MACAW_ASSIGN_OR_RETURN(const ClientResult result,
                             client_->Conclude(context, work.outcomes, workspace_));
      MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> up,
                             UpViews(schema_, phase, result, workspace_));
      MACAW_ASSIGN_OR_RETURN(const std::vector<ConstVectorView> state,
                             StateViews(schema_, context.state, result));
      if (lost.contains(client)) continue;
      MACAW_RETURN_IF_ERROR(sum.Add({ClientId(client), context.weight, turn.multiplicity, up}));
      std::vector<FlatVector> next;
      for (size_t item = 0; item < state.size(); ++item)
        next.push_back(FlatVector::CopyOf(state[item], schema_.state[item].layout));
      if (!next.empty()) staged[client] = std::move(next);
    }
    MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate aggregate, std::move(sum).Report());
    for (const auto& [name, value] : TakeMetrics(schema_, phase, aggregate)) metrics_[name] = value;
    MACAW_ASSIGN_OR_RETURN(const AfterApply after, server_->Apply(asked, std::move(aggregate)));
    if (after == AfterApply::kNextPhase) {
      MACAW_RETURN_IF_ERROR(CheckNextPhase(schema_, phase));
      continue;
    }
    for (auto& [client, vectors] : staged) states_[client] = std::move(vectors);
    return absl::OkStatus();
  }
}

absl::Status RoundLoop::Rounds(int count) {
  std::vector<size_t> everybody(population_.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  for (int i = 0; i < count; ++i) MACAW_RETURN_IF_ERROR(Round(everybody));
  return absl::OkStatus();
}

absl::Status RoundLoop::SampledRounds(int count, uint64_t size) {
  for (int i = 0; i < count; ++i) {
    RandomStream stream({.seed = 1, .purpose = Purpose::kCohort, .round = macaw::Round(round_)});
    const std::vector<uint64_t> drawn = SampleWithoutReplacement(stream, population_.size(), size);
    MACAW_RETURN_IF_ERROR(Round({drawn.begin(), drawn.end()}));
  }
  return absl::OkStatus();
}

ConstVectorView RoundLoop::StateOf(size_t client, size_t item) const {
  return (states_[client].empty() ? zero_state_ : states_[client])[item].view();
}

double RoundLoop::Share(size_t client) const {
  return population_[client].examples / setup_.total_weight;
}

Numbers RoundLoop::Saved(const std::string& name) const {
  return NumbersOf(server_->Save().vectors.at(name).view());
}

Numbers RoundLoop::Personal(size_t client) {
  const FlatVector model = Whole(server_->Result());
  const std::vector<ConstVectorView> broadcast = {model.view()};  // all that evaluation sends
  workspace_.Reset();
  const auto point =
      *client_->EvaluationPoint(Context(client, states_[client], broadcast), workspace_);
  return NumbersOf(std::get<ConstVectorView>(point));
}

absl::Status RoundLoop::ForgetStates() {
  for (std::vector<FlatVector>& state : states_) state.clear();
  return server_->ForgetStates();
}

absl::Status RoundLoop::ResumeFrom(const RoundLoop& other) {
  if (setup_.asynchronous && other.models_.size() != other.round_)
    return absl::InvalidArgumentError("the other loop has kept no models: it is not asynchronous");
  const ServerState saved = other.server_->Save();
  std::vector<LayoutPtr> layouts = {setup_.layout, SentModelLayout(schema_)};
  for (const DownChannel& channel : schema_.down) layouts.push_back(channel.layout);
  for (const aggregation::ChannelSpec& channel : schema_.up) layouts.push_back(channel.layout);
  layouts.insert(layouts.end(), schema_.saved.begin(), schema_.saved.end());
  MACAW_RETURN_IF_ERROR(CheckSaved(schema_, saved, layouts));
  MACAW_RETURN_IF_ERROR(server_->Load(saved));
  for (size_t client = 0; client < states_.size(); ++client) {
    states_[client].clear();
    for (const FlatVector& item : other.states_[client]) states_[client].push_back(item.Clone());
  }
  models_.clear();
  for (const FlatVector& model : other.models_) models_.push_back(model.Clone());
  round_ = other.round_;
  return absl::OkStatus();
}

}  // namespace macaw::algorithms
