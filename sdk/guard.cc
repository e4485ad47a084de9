#include "sdk/guard.h"

#include <functional>
#include <memory>
#include <utility>

#include "core/status.h"

namespace macaw::sdk {
namespace {

using algorithms::ClientAlgorithm;
using algorithms::ClientContext;
using algorithms::ClientResult;
using algorithms::ServerAlgorithm;
using algorithms::Setup;
using algorithms::Workspace;

class GuardedClient final : public ClientAlgorithm {
 public:
  GuardedClient(std::unique_ptr<ClientAlgorithm> inner, std::string plugin)
      : inner_(std::move(inner)), plugin_(std::move(plugin)) {}

  absl::StatusOr<training::LocalPlan> Prepare(const ClientContext& context,
                                              Workspace& workspace) const override {
    return Caught(plugin_, [&] { return inner_->Prepare(context, workspace); });
  }
  absl::StatusOr<ClientResult> Conclude(const ClientContext& context,
                                        std::span<const training::StageOutcome> outcomes,
                                        Workspace& workspace) const override {
    return Caught(plugin_, [&] { return inner_->Conclude(context, outcomes, workspace); });
  }
  absl::StatusOr<training::Point> EvaluationPoint(const ClientContext& context,
                                                  Workspace& workspace) const override {
    return Caught(plugin_, [&] { return inner_->EvaluationPoint(context, workspace); });
  }

 private:
  const std::unique_ptr<ClientAlgorithm> inner_;
  const std::string plugin_;
};

// Configure and Save return plain values and cannot fail. If they throw, the exception is stored,
// and the next Apply returns it as an error that ends the round. (Model and Result return views of
// existing data; they must not throw.)
class GuardedServer final : public ServerAlgorithm {
 public:
  GuardedServer(std::unique_ptr<ServerAlgorithm> inner, std::string plugin)
      : inner_(std::move(inner)), plugin_(std::move(plugin)) {}

  std::vector<ConstVectorView> Configure(Round round, Phase phase) const override {
    return Keep<std::vector<ConstVectorView>>([&] { return inner_->Configure(round, phase); });
  }
  absl::StatusOr<algorithms::AfterApply> Apply(Round round, Phase phase,
                                               aggregation::Aggregate aggregate) override {
    MACAW_RETURN_IF_ERROR(failure_);
    return Caught(plugin_, [&] { return inner_->Apply(round, phase, std::move(aggregate)); });
  }
  ConstVectorView Model() const override { return inner_->Model(); }
  ConstVectorView Result() const override { return inner_->Result(); }
  algorithms::ServerState Save() const override {
    return Keep<algorithms::ServerState>([&] { return inner_->Save(); });
  }
  absl::Status Load(const algorithms::ServerState& state) override {
    return Caught(plugin_, [&] { return inner_->Load(state); });
  }

 private:
  template <typename T>
  T Keep(const std::function<T()>& call) const {
    absl::StatusOr<T> result = Caught(plugin_, [&]() -> absl::StatusOr<T> { return call(); });
    if (result.ok()) return *std::move(result);
    failure_ = result.status();
    return T{};
  }

  const std::unique_ptr<ServerAlgorithm> inner_;
  const std::string plugin_;
  mutable absl::Status failure_;  // not locked: the server half is used by one thread
};

}  // namespace

algorithms::Description Guard(algorithms::Description description, const std::string& plugin) {
  if (description.check) {
    description.check = [inner = std::move(description.check), plugin](const Setup& setup) {
      return Caught(plugin, [&] { return inner(setup); });
    };
  }
  if (description.notes) {
    description.notes = [inner = std::move(description.notes), plugin](const Setup& setup) {
      absl::StatusOr<std::vector<std::string>> notes = Caught(
          plugin, [&]() -> absl::StatusOr<std::vector<std::string>> { return inner(setup); });
      if (notes.ok()) return *std::move(notes);
      return std::vector<std::string>{std::string(notes.status().message())};
    };
  }
  description.schema = [inner = std::move(description.schema), plugin](const Setup& setup) {
    return Caught(plugin, [&] { return inner(setup); });
  };
  description.server = [inner = std::move(description.server), plugin](
                           const Setup& setup,
                           FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> server,
                           Caught(plugin, [&] { return inner(setup, std::move(model)); }));
    if (server == nullptr) {
      return absl::InternalError(absl::StrCat("plug-in \"", plugin, "\" made no server half"));
    }
    return std::make_unique<GuardedServer>(std::move(server), plugin);
  };
  description.client = [inner = std::move(description.client), plugin](
                           const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> client,
                           Caught(plugin, [&] { return inner(setup); }));
    if (client == nullptr) {
      return absl::InternalError(absl::StrCat("plug-in \"", plugin, "\" made no client half"));
    }
    return std::make_unique<GuardedClient>(std::move(client), plugin);
  };
  return description;
}

}  // namespace macaw::sdk
