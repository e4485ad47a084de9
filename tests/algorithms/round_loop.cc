#include "tests/algorithms/round_loop.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "aggregation/exact_sum.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

std::array<double, 2> Doubles(ConstVectorView view) {
  return DispatchDType(view.dtype(), [&]<typename T>(T) {
    return std::array<double, 2>{double{view.As<T>()[0]}, double{view.As<T>()[1]}};
  });
}

}  // namespace

std::vector<TestPopulationClient> Q4() {
  return {{{.a = {{{2, .3}, {.3, 1}}}, .b = {1, 2}}, 1},
          {{.a = {{{1, -.2}, {-.2, .5}}}, .b = {-3, 1}}, 2},
          {{.a = {{{3, 0}, {0, .7}}}, .b = {.5, -2}}, 3},
          {{.a = {{{.6, .1}, {.1, 2}}}, .b = {2, 4}}, 4}};
}

double Distance(const std::array<double, 2>& a, const std::array<double, 2>& b) {
  return std::max(std::fabs(a[0] - b[0]), std::fabs(a[1] - b[1]));
}

Description Builtin(const std::string& name) {
  Registry registry;
  RegisterBuiltinAlgorithms(registry);
  return **registry.Find(name);
}

RoundLoop::RoundLoop(const Description& description, std::vector<TestPopulationClient> population,
                     const Options& options)
    : population_(std::move(population)), trainer_(TwoNumbers(options.dtype)) {
  Registry registry;
  if (!registry.Add(description).ok()) std::abort();
  setup_.config = *registry.Complete({description.name, options.parameters});
  setup_.layout = TwoNumbers(options.dtype);
  setup_.local.steps = options.steps;
  setup_.local.epochs = options.epochs;
  setup_.local.lr = 0.1;
  setup_.clients = population_.size();
  for (const TestPopulationClient& client : population_) setup_.total_weight += client.examples;
  schema_ = *description.schema(setup_);
  FlatVector model(setup_.layout);
  DispatchDType(options.dtype, [&]<typename T>(T) {
    for (size_t i = 0; i < 2; ++i) model.As<T>()[i] = static_cast<T>(options.start[i]);
  });
  server_ = *description.server(setup_, std::move(model));
  client_ = *description.client(setup_);
  states_.resize(population_.size());
  for (const NamedLayout& item : schema_.state) zero_state_.emplace_back(item.layout);
}

ClientContext RoundLoop::Context(size_t client, std::span<const ConstVectorView> broadcast) {
  const std::vector<FlatVector>& kept = states_[client];
  state_views_.clear();
  for (const FlatVector& vector : kept.empty() ? zero_state_ : kept)
    state_views_.push_back(vector.view());
  ClientContext context;
  context.round = macaw::Round(round_);
  context.client = ClientId(client);
  context.examples = population_[client].examples;
  context.weight = population_[client].examples;
  context.local = setup_.local;
  context.broadcast = broadcast;
  context.state = state_views_;
  context.first_turn = kept.empty();
  return context;
}

absl::Status RoundLoop::Round(const std::vector<size_t>& cohort) {
  ++round_;
  aggregation::GridOrder order{
      .max_weight = 1, .total_weight = 1, .total_multiplicity = std::max<size_t>(1, cohort.size())};
  for (const size_t client : cohort) {
    order.max_weight = std::max<double>(order.max_weight, population_[client].examples);
    order.total_weight += population_[client].examples;
  }
  for (uint8_t phase = 0;; ++phase) {
    const std::vector<ConstVectorView> broadcast =
        server_->Configure(macaw::Round(round_), Phase(phase));
    MACAW_ASSIGN_OR_RETURN(aggregation::ExactSum sum,
                           aggregation::ExactSum::Make(schema_.up, order));
    std::map<size_t, std::vector<FlatVector>> staged;
    for (const size_t client : cohort) {
      workspace_.Reset();
      ClientContext context = Context(client, broadcast);
      context.phase = Phase(phase);
      MACAW_ASSIGN_OR_RETURN(const training::LocalPlan plan, client_->Prepare(context, workspace_));
      MACAW_ASSIGN_OR_RETURN(const std::vector<training::StageOutcome> outcomes,
                             trainer_.Run(plan, population_[client].objective, context.examples));
      MACAW_ASSIGN_OR_RETURN(const ClientResult result,
                             client_->Conclude(context, outcomes, workspace_));
      MACAW_RETURN_IF_ERROR(sum.Add({ClientId(client), context.weight, 1, result.up}));
      for (size_t item = 0; item < result.state.size(); ++item) {
        staged[client].push_back(
            FlatVector::CopyOf(result.state[item], schema_.state[item].layout));
      }
    }
    MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate aggregate, std::move(sum).Report());
    MACAW_ASSIGN_OR_RETURN(
        const AfterApply after,
        server_->Apply(macaw::Round(round_), Phase(phase), std::move(aggregate)));
    if (after == AfterApply::kNextPhase) {
      if (!staged.empty()) return absl::InternalError("state moved before the last phase");
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

std::array<double, 2> RoundLoop::Model() const { return Doubles(server_->Model()); }

std::array<double, 2> RoundLoop::State(size_t client, size_t item) const {
  return states_[client].empty() ? std::array<double, 2>{} : Doubles(states_[client][item].view());
}

std::array<double, 2> RoundLoop::Personal(size_t client) {
  const std::vector<ConstVectorView> broadcast = server_->Configure(macaw::Round(round_), Phase(0));
  workspace_.Reset();
  const auto point = *client_->EvaluationPoint(Context(client, broadcast), workspace_);
  return Doubles(std::get<ConstVectorView>(point));
}

}  // namespace macaw::algorithms
