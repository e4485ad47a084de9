#include "server/client_parts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/factored.h"
#include "core/buffer.h"
#include "core/status.h"

namespace macaw::server {
namespace {

using aggregation::ExactSum;

}  // namespace

void ClientParts::Open(const PhaseOrder& order, std::vector<aggregation::ChannelSpec> channels) {
  Drop();
  grid_ = order.grid;
  channels_ = std::move(channels);
}

void ClientParts::Drop() {
  clients_.clear();
  sums_.clear();
  rest_.reset();
}

bool ClientParts::Has(ClientId client) const {
  return std::ranges::find(clients_, client) != clients_.end();
}

absl::Status ClientParts::Add(ExactSum&& sum, ClientId client, bool apart) {
  if (!apart) {
    if (rest_.has_value()) return rest_->Merge(std::move(sum));
    rest_ = std::move(sum);
    return absl::OkStatus();
  }
  if (Has(client)) {
    return absl::InternalError(
        absl::StrCat("client ", client.value, " was added to the open round twice"));
  }
  // The part's bytes are those of an upload, of which a session may have two at a time.
  MACAW_ASSIGN_OR_RETURN(ExactSum own, CopyOf(sum));
  clients_.push_back(client);
  sums_.push_back(std::move(own));
  return absl::OkStatus();
}

absl::StatusOr<ExactSum> ClientParts::CopyOf(const ExactSum& sum) const {
  return ExactSum::Decode(std::make_shared<const AlignedBuffer>(sum.Encode()), channels_, grid_);
}

absl::StatusOr<ExactSum> ClientParts::SumOf(size_t begin, size_t end) const {
  if (begin == end) return ExactSum::Make(channels_, grid_);
  MACAW_ASSIGN_OR_RETURN(AlignedBuffer bytes,
                         ExactSum::EncodeTogether(std::span(sums_).subspan(begin, end - begin)));
  return ExactSum::Decode(std::make_shared<const AlignedBuffer>(std::move(bytes)), channels_,
                          grid_);
}

absl::StatusOr<ExactSum> ClientParts::Sum() const {
  MACAW_ASSIGN_OR_RETURN(ExactSum sum, SumOf(0, sums_.size()));
  if (!rest_.has_value()) return sum;
  MACAW_ASSIGN_OR_RETURN(ExactSum rest, CopyOf(*rest_));
  MACAW_RETURN_IF_ERROR(sum.Merge(std::move(rest)));
  return sum;
}

absl::StatusOr<ExactSum> ClientParts::Alone(size_t n) const { return SumOf(n, n + 1); }

absl::Status ClientParts::EachWithout(Wanted wanted, Visit visit) const {
  MACAW_ASSIGN_OR_RETURN(ExactSum others, rest_.has_value() ? CopyOf(*rest_) : SumOf(0, 0));
  return EachWithout(0, sums_.size(), std::move(others), wanted, visit);
}

// `others`: the sum of the rest and of those outside [begin, end).
absl::Status ClientParts::EachWithout(size_t begin, size_t end, ExactSum others, Wanted wanted,
                                      Visit visit) const {
  if (std::none_of(clients_.begin() + static_cast<ptrdiff_t>(begin),
                   clients_.begin() + static_cast<ptrdiff_t>(end), wanted))
    return absl::OkStatus();
  if (end - begin == 1) return visit(begin, std::move(others));
  const size_t middle = begin + (end - begin) / 2;
  MACAW_ASSIGN_OR_RETURN(ExactSum right, SumOf(middle, end));
  MACAW_ASSIGN_OR_RETURN(ExactSum outside, CopyOf(others));
  MACAW_RETURN_IF_ERROR(right.Merge(std::move(outside)));
  MACAW_RETURN_IF_ERROR(EachWithout(begin, middle, std::move(right), wanted, visit));
  MACAW_ASSIGN_OR_RETURN(ExactSum left, SumOf(begin, middle));
  MACAW_RETURN_IF_ERROR(left.Merge(std::move(others)));
  return EachWithout(middle, end, std::move(left), wanted, visit);
}

absl::Status ApplyWithout(algorithms::ServerAlgorithm& half, const PhaseOrder& order,
                          ExactSum others, const algorithms::Schema& schema, uint64_t seed,
                          absl::string_view key, ClientId client) {
  MACAW_ASSIGN_OR_RETURN(aggregation::Aggregate aggregate, std::move(others).Report());
  algorithms::TakeMetrics(schema, order.phase, aggregate);
  std::map<std::string, double> metrics;  // of a round that there was not
  const algorithms::ServerContext context{.round = order.round,
                                          .phase = order.phase,
                                          .seed = seed,
                                          .metrics = &metrics,
                                          .schema = &schema};
  MACAW_RETURN_IF_ERROR(half.Configure(context).status());
  const absl::StatusOr<algorithms::AfterApply> applied = half.Apply(context, std::move(aggregate));
  if (!applied.ok())
    return Annotate(applied.status(), absl::StrCat("the round without client ", client.value));
  if (*applied == algorithms::AfterApply::kNextPhase)
    return CannotLeaveOutOfPhases(key, schema.whose);
  return absl::OkStatus();
}

bool HasLaterPhases(const algorithms::Schema& schema) {
  const auto later = [](const auto& item) {
    return std::ranges::any_of(item.phases, [](Phase phase) { return phase != Phase(0); });
  };
  return std::ranges::any_of(schema.up, later) || std::ranges::any_of(schema.down, later) ||
         std::ranges::any_of(schema.metrics, later);
}

absl::Status CannotLeaveOutOfPhases(absl::string_view key, absl::string_view whose) {
  return absl::InvalidArgumentError(absl::StrCat(
      key, ": a round of ", whose,
      " has several phases, and what clients send in the later ones depends on the client that "
      "would be left out: replay the run without it (macaw replay --without)"));
}

absl::Status CheckLeavesClientsOut(absl::string_view key, const RunPlan& run,
                                   const algorithms::Description& algorithm,
                                   const algorithms::Schema& schema) {
  const auto refuse = [key](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": ", why));
  };
  if (!algorithm.has_common_model) {
    return refuse(absl::StrCat("algorithm \"", run.algorithm.name,
                               "\" has no common model that a client could be left out of"));
  }
  if (!schema.models.empty()) {
    return refuse(absl::StrCat("algorithm \"", run.algorithm.name,
                               "\" has several models, and each client is tested with its own: "
                               "replay the run without it (macaw replay --without)"));
  }
  if (HasLaterPhases(schema) && algorithms::IsFactored(run.update)) {
    return refuse(absl::StrCat(
        "update.codec = [\"", run.update.codec.front(),
        "\"] gives a round two phases, and what clients send in the second one depends on the "
        "client that would be left out: take \"acpsgd\", or replay the run without it (macaw "
        "replay --without)"));
  }
  if (HasLaterPhases(schema)) return CannotLeaveOutOfPhases(key, schema.whose);
  if (run.privacy.on()) {
    return refuse(
        "[privacy] hides what a single client adds to a round, and this shows it: remove one of "
        "the two");
  }
  if (run.asynchronous.on()) {
    return refuse(
        "it needs rounds that wait for their clients, and round.mode lets them overlap: clients of "
        "the next rounds train from the model that has the client");
  }
  return absl::OkStatus();
}

}  // namespace macaw::server
