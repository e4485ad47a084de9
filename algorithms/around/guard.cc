#include "algorithms/around/guard.h"

#include <memory>
#include <utility>

#include "algorithms/around/channels.h"
#include "algorithms/around/decorated.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

class GuardedClient final : public DecoratedClient {
 public:
  GuardedClient(std::unique_ptr<ClientAlgorithm> inner, std::string whose,
                absl::StatusOr<Schema> rule)
      : DecoratedClient(std::move(inner)), whose_(std::move(whose)), rule_(std::move(rule)) {
    if (rule_.ok()) rule_->whose = whose_;
  }

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    return Caught(whose_, [&] { return inner().Prepare(context, workspace); });
  }
  absl::StatusOr<training::LocalPlan> Continue(const ClientContext& context,
                                               std::span<const training::StageOutcome> outcomes,
                                               Workspace& workspace) const override {
    return Caught(whose_, [&] { return inner().Continue(context, outcomes, workspace); });
  }
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    MACAW_ASSIGN_OR_RETURN(ClientResult result, Caught(whose_, [&] {
                             return inner().Conclude(context, outcomes, workspace);
                           }));
    MACAW_RETURN_IF_ERROR(rule_.status());
    MACAW_RETURN_IF_ERROR(CheckUp(*rule_, context.phase, result));
    return result;
  }
  absl::Status Sent(const ClientContext& context, ClientResult& result,
                    Workspace& workspace) const override {
    return Caught(whose_, [&] { return inner().Sent(context, result, workspace); });
  }
  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace& workspace) const override {
    return Caught(whose_, [&] { return inner().EvaluationPoint(context, workspace); });
  }

 private:
  const std::string whose_;
  absl::StatusOr<Schema> rule_;  // of the rule alone
};

// Save returns a plain value and cannot fail. If it throws, the exception is stored, and the next
// Apply returns it as an error that ends the round. (Model and Result return views of existing
// data; they must not throw.)
class GuardedServer final : public DecoratedServer {
 public:
  GuardedServer(std::unique_ptr<ServerAlgorithm> inner, std::string whose)
      : DecoratedServer(std::move(inner)), whose_(std::move(whose)) {}

  absl::StatusOr<Broadcast> Configure(const ServerContext& context) const override {
    return Caught(whose_, [&] { return inner().Configure(context); });
  }
  absl::StatusOr<AfterApply> Apply(const ServerContext& context,
                                   aggregation::Aggregate aggregate) override {
    MACAW_RETURN_IF_ERROR(failure_);
    return Caught(whose_, [&] { return inner().Apply(context, std::move(aggregate)); });
  }
  ServerState Save() const override {
    absl::StatusOr<ServerState> saved =
        Caught(whose_, [&]() -> absl::StatusOr<ServerState> { return inner().Save(); });
    if (saved.ok()) return *std::move(saved);
    failure_ = saved.status();
    return {};
  }
  absl::Status Load(const ServerState& state) override {
    return Caught(whose_, [&] { return inner().Load(state); });
  }
  absl::Status ForgetStates() override {
    return Caught(whose_, [&] { return inner().ForgetStates(); });
  }

 private:
  const std::string whose_;
  mutable absl::Status failure_;  // not locked: the server half is used by one thread
};

}  // namespace

std::string WhoseOf(const Description& description) {
  const std::string name = absl::StrCat("algorithm ", description.name);
  if (description.plugin.empty()) return name;
  return absl::StrCat("plug-in \"", description.plugin, "\", ", name);
}

Description Guard(Description description) {
  const std::string whose = WhoseOf(description);
  if (description.check) {
    description.check = [inner = std::move(description.check), whose](const Setup& setup) {
      return Caught(whose, [&] { return inner(setup); });
    };
  }
  if (description.notes) {
    description.notes = [inner = std::move(description.notes), whose](const Setup& setup) {
      absl::StatusOr<std::vector<std::string>> notes =
          Caught(whose, [&]() -> absl::StatusOr<std::vector<std::string>> { return inner(setup); });
      if (notes.ok()) return *std::move(notes);
      return std::vector<std::string>{std::string(notes.status().message())};
    };
  }
  if (description.totals) {
    description.totals = [inner = std::move(description.totals), whose](const Setup& setup) {
      const absl::StatusOr<TotalsUsed> used =
          Caught(whose, [&]() -> absl::StatusOr<TotalsUsed> { return inner(setup); });
      return used.value_or(TotalsUsed{.clients = true, .weight = true});
    };
  }
  const auto schema = [inner = std::move(description.schema), whose](const Setup& setup) {
    return Caught(whose, [&] { return inner(setup); });
  };
  description.schema = schema;
  description.server = [inner = std::move(description.server), whose](
                           const Setup& setup,
                           FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> server,
                           Caught(whose, [&] { return inner(setup, std::move(model)); }));
    if (server == nullptr) {
      return absl::InternalError(absl::StrCat(whose, " made no server half"));
    }
    return std::make_unique<GuardedServer>(std::move(server), whose);
  };
  description.client = [inner = std::move(description.client), schema, whose](
                           const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> client,
                           Caught(whose, [&] { return inner(setup); }));
    if (client == nullptr) {
      return absl::InternalError(absl::StrCat(whose, " made no client half"));
    }
    return std::make_unique<GuardedClient>(std::move(client), whose, schema(setup));
  };
  return description;
}

}  // namespace macaw::algorithms
