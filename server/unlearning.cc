#include "server/unlearning.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "algorithms/around/factored.h"
#include "core/status.h"

namespace macaw::server {
namespace {

using aggregation::ExactSum;

// In a saved state: the number "unlearned_17" is how many rounds have counted the client, and what
// its half keeps follows after another "_".
constexpr absl::string_view kSaved = "unlearned_";

std::string SavedName(ClientId client) { return absl::StrCat(kSaved, client.value); }

// The items of a saved state that belong to the client.
template <typename Item, typename Copy>
std::map<std::string, Item> ItemsOf(ClientId client, const std::map<std::string, Item>& saved,
                                    const Copy& copy) {
  const std::string prefix = SavedName(client) + "_";
  std::map<std::string, Item> own;
  for (auto item = saved.lower_bound(prefix); item != saved.end(); ++item) {
    absl::string_view name = item->first;
    if (!absl::ConsumePrefix(&name, prefix)) break;
    own.emplace(std::string(name), copy(item->second));
  }
  return own;
}

}  // namespace

absl::StatusOr<Unlearning> Unlearning::Make(const algorithms::Description& algorithm,
                                            const algorithms::Setup& setup,
                                            const FlatVector& initial,
                                            std::span<const uint64_t> clients) {
  Unlearning unlearning;
  for (const uint64_t client : clients) {
    Followed& followed = unlearning.followed_[ClientId(client)];
    MACAW_ASSIGN_OR_RETURN(followed.half, algorithm.server(setup, initial.Clone()));
  }
  return unlearning;
}

void Unlearning::Open(const PhaseOrder& order, const algorithms::ServerAlgorithm& run) {
  order_ = order;
  const bool idle = std::ranges::any_of(
      followed_, [](const auto& followed) { return followed.second.rounds == 0; });
  before_ = idle ? run.Save() : algorithms::ServerState();
}

absl::Status Unlearning::Apply(const ClientParts& parts, const algorithms::Schema& schema,
                               uint64_t seed) {
  const auto asked = [this](ClientId client) { return Asks(client); };
  const auto without_one = [&](size_t n, ExactSum others) -> absl::Status {
    const ClientId client = parts.clients()[n];
    Followed& followed = followed_.at(client);
    if (followed.rounds++ == 0) MACAW_RETURN_IF_ERROR(followed.half->Load(before_));
    return ApplyWithout(*followed.half, order_, std::move(others), schema, seed, kUnlearn, client);
  };
  MACAW_RETURN_IF_ERROR(parts.EachWithout(asked, without_one));
  for (auto& [client, followed] : followed_) {
    if (followed.rounds == 0 || parts.Has(client)) continue;
    MACAW_ASSIGN_OR_RETURN(ExactSum all, parts.Sum());
    MACAW_RETURN_IF_ERROR(
        ApplyWithout(*followed.half, order_, std::move(all), schema, seed, kUnlearn, client));
  }
  before_ = {};
  return absl::OkStatus();
}

absl::Status Unlearning::ForgetStates() {
  for (auto& [client, followed] : followed_) {
    if (followed.rounds > 0) MACAW_RETURN_IF_ERROR(followed.half->ForgetStates());
  }
  return absl::OkStatus();
}

std::vector<Unlearning::Model> Unlearning::Models() const {
  std::vector<Model> models;
  for (const auto& [client, followed] : followed_) {
    if (followed.rounds == 0) continue;
    models.push_back({client, followed.rounds, followed.half->Result()});
  }
  return models;
}

void Unlearning::Save(algorithms::ServerState& state) const {
  for (const auto& [client, followed] : followed_) {
    if (followed.rounds == 0) continue;
    const std::string name = SavedName(client);
    state.numbers.insert_or_assign(name, followed.rounds);
    algorithms::ServerState own = followed.half->Save();
    for (auto& [of, vector] : own.vectors)
      state.vectors.insert_or_assign(absl::StrCat(name, "_", of), std::move(vector));
    for (const auto& [of, number] : own.numbers)
      state.numbers.insert_or_assign(absl::StrCat(name, "_", of), number);
  }
}

absl::Status Unlearning::Load(const algorithms::ServerState& state) {
  for (auto& [client, followed] : followed_) {
    const auto rounds = state.numbers.find(SavedName(client));
    followed.rounds = 0;
    if (rounds == state.numbers.end()) continue;
    const algorithms::ServerState own = {
        .vectors =
            ItemsOf(client, state.vectors, [](const FlatVector& vector) { return vector.Clone(); }),
        .numbers = ItemsOf(client, state.numbers, [](double number) { return number; })};
    MACAW_RETURN_IF_ERROR(
        Annotate(followed.half->Load(own),
                 absl::StrCat(kUnlearn, ": the model without client ", client.value)));
    followed.rounds = static_cast<uint32_t>(rounds->second);
  }
  return absl::OkStatus();
}

absl::Status CheckUnlearning(const RunPlan& run, const algorithms::Description& algorithm,
                             const algorithms::Schema& schema) {
  if (run.evaluation.unlearn.empty()) return absl::OkStatus();
  if (algorithms::IsFactored(run.update)) {
    return absl::InvalidArgumentError(absl::StrCat(
        kUnlearn, ": update.codec = [\"", run.update.codec.front(),
        "\"] sends factors on a basis that the server makes of what all clients have sent, and "
        "without a client it would be another one: replay the run without it (macaw replay "
        "--without)"));
  }
  return CheckLeavesClientsOut(kUnlearn, run, algorithm, schema);
}

}  // namespace macaw::server
