#include "algorithms/around/majority.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/counted_state.h"
#include "algorithms/around/guard.h"
#include "algorithms/around/residual_age.h"
#include "codecs/codec.h"
#include "codecs/majority.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

absl::Status CheckRuleForVotes(const Description& rule, const Schema& schema, const Setup& setup) {
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(why...));
  };
  if (rule.has_several_models)
    return refuse("is a vote on one model, and the clients of ", rule.name, " share several");
  if (rule.pools_clients || !rule.has_common_model)
    return refuse("is for rules whose server uses what clients send, and ", rule.name,
                  "'s does not");
  if (HasStateThatFollows(rule, schema))
    return refuse("the clients of ", rule.name,
                  " keep a state that mirrors what is counted of their updates, and a vote is no "
                  "mean of these, so server and clients would not agree: take \"sign\"");
  MACAW_RETURN_IF_ERROR(CheckCountedState(rule, schema, "A vote keeps the signs of that alone"));
  for (const ChannelSpec& channel : schema.up) {
    if (channel.reduction != Reduction::kCollect) continue;
    return refuse(rule.name, " looks at each client's own update (", channel.name,
                  "), and a vote is of all of them; a majority outvotes hostile clients by itself: "
                  "use algorithm.name = \"fedavg\", or take \"sign\"");
  }
  const auto name = [](std::string* out, const ChannelSpec& channel) {
    absl::StrAppend(out, channel.name);
  };
  if (schema.up.size() != 1)
    return refuse(rule.name, " puts several sums together (", absl::StrJoin(schema.up, ", ", name),
                  "), and a vote keeps the sizes of none: take \"sign\"");
  const ChannelSpec& channel = schema.up.front();
  if (!SameLayout(channel.layout.get(), setup.layout.get()))
    return refuse("the clients of ", rule.name, " send no vector of the model's tensors");
  if (channel.reduction != Reduction::kWeightedMean && channel.reduction != Reduction::kMean)
    return refuse("a vote takes the place of a mean over clients, and the channel '", channel.name,
                  "' of ", rule.name, " is none");
  if (setup.GetOr<double>("update_clip", 0) > 0)
    return refuse("algorithm.", rule.name,
                  ".update_clip shortens updates, and of these only signs are sent: take it out");
  for (const MetricSpec& metric : schema.metrics) {
    if (metric.name == kVoteMarginMetric)
      return refuse("the rule reports a metric '", metric.name, "' of its own");
  }
  return absl::OkStatus();
}

absl::Status CheckVoteFeedback(const UpdateConfig& update) {
  if (update.feedback == "residual")
    return absl::InvalidArgumentError(
        "update.feedback = \"residual\": a vote is of no size, so what it left out of an update "
        "cannot be said and fed back: use \"none\", or take \"sign\"");
  if (update.feedback == "ef21")
    return absl::InvalidArgumentError(
        "update.feedback = \"ef21\": a sum of votes on differences is near no client's update, and "
        "ef21 needs a codec that is: use \"none\", or take \"sign\"");
  return CheckDecay(update, /*residual=*/false);
}

// The rule's server half does not divide by the planned weight of a Poisson cohort.
Setup WithoutPlannedWeight(Setup setup) {
  if (setup.cohort.sampling == "poisson") setup.cohort.sampling = "uniform";
  return setup;
}

std::vector<std::string> NotesOnVotes(const ChannelSpec& channel, const UpdateConfig& update,
                                      const Setup& setup, double step, bool noised) {
  const std::string what = absl::StrCat("update.codec = ", codecs::TextOf(update.codec));
  std::vector<std::string> notes = {
      absl::StrCat(what, " on ", channel.name, ", update.feedback ",
                   update.feedback == "auto" ? "\"auto\" is " : "= ",
                   "\"none\": a client sends signs, and the rule sees +", step, ", -", step,
                   " or, in a tie, 0 for each weight in place of the mean update"),
      absl::StrCat(what,
                   ": local.lr no longer says how far a round moves the model. Without a "
                   "server_lr_schedule weights end up going to and fro by this step, and where "
                   "clients differ they end where votes are even, beside the optimum of the mean")};
  if (channel.reduction == Reduction::kWeightedMean &&
      setup.cohort.weight != WeightPolicy::kUniform) {
    notes.push_back(
        absl::StrCat(what, ": a client's vote weighs its ",
                     setup.cohort.weight == WeightPolicy::kTokens ? "tokens" : "examples",
                     "; the papers' vote is one a client, cohort.weight = \"uniform\""));
  }
  if (noised)
    notes.push_back(absl::StrCat(
        what,
        ": [privacy] adds its noise to the votes, so noise alone decides where votes are close, and "
        "in a round without a client everywhere"));
  return notes;
}

}  // namespace

bool IsMajority(const UpdateConfig& update) { return codecs::HasMajority(update.codec); }

absl::Status CheckAttackOnVotes(const AttackConfig& attack) {
  if (!attack.on()) return absl::OkStatus();
  const char* const remedy =
      ", and with \"majority\" in update.codec a client sends votes: use "
      "attack.kind = \"sign-flip\"";
  if (attack.omniscient())
    return absl::InvalidArgumentError(absl::StrCat(
        "attack.kind = \"", attack.kind, "\" sends parts of the honest clients' mean", remedy));
  if (attack.noise > 0)
    return absl::InvalidArgumentError(
        absl::StrCat("attack.noise makes normal numbers of what free-riders send", remedy,
                     ", or attack.noise = 0, with which they abstain"));
  return absl::OkStatus();
}

Description ByMajority(const Description& rule, const UpdateConfig& update, bool noised) {
  struct Inside {
    Schema schema;
    double step = 0;

    const ChannelSpec& channel() const { return schema.up.front(); }
  };
  const auto look = [rule, update](const Setup& setup) -> absl::StatusOr<Inside> {
    MACAW_ASSIGN_OR_RETURN(const double step, codecs::StepOfMajority(update.codec));
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(setup));
    schema.whose = WhoseOf(rule);
    MACAW_RETURN_IF_ERROR(CheckRuleForVotes(rule, schema, setup));
    MACAW_RETURN_IF_ERROR(CheckVoteFeedback(update));
    return Inside{std::move(schema), step};
  };
  Description result = rule;
  result.check = [rule, update, look](const Setup& setup) -> absl::Status {
    if (rule.check) MACAW_RETURN_IF_ERROR(rule.check(WithoutPlannedWeight(setup)));
    const absl::Status status = look(setup).status();
    if (status.ok()) return status;
    return absl::InvalidArgumentError(
        absl::StrCat("update.codec = ", codecs::TextOf(update.codec), ": ", status.message()));
  };
  result.notes = [rule, update, noised, look](const Setup& setup) {
    std::vector<std::string> notes;
    if (rule.notes) notes = rule.notes(setup);
    const absl::StatusOr<Inside> inside = look(setup);
    if (!inside.ok()) return notes;  // the run will be refused
    for (std::string& note : NotesOnVotes(inside->channel(), update, setup, inside->step, noised))
      notes.push_back(std::move(note));
    return notes;
  };
  result.schema = [look, noised](const Setup& setup) -> absl::StatusOr<Schema> {
    MACAW_ASSIGN_OR_RETURN(Inside inside, look(setup));
    ChannelSpec& channel = inside.schema.up.front();
    channel.coded = true;
    channel.levels = 1;
    if (channel.layout->parameter_size() == channel.layout->size()) channel.bound = 1;
    if (!noised)
      inside.schema.metrics.push_back({.name = kVoteMarginMetric, .reduction = std::nullopt});
    return std::move(inside.schema);
  };
  result.client = [rule,
                   look](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(const Inside inside, look(setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, rule.client(setup));
    return MakeMajorityClient(std::move(inner), inside.channel());
  };
  result.server = [rule, look, noised](
                      const Setup& setup,
                      FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(const Inside inside, look(setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> inner,
                           rule.server(WithoutPlannedWeight(setup), std::move(model)));
    return MakeMajorityServer(std::move(inner), inside.channel(), inside.step, !noised);
  };
  return result;
}

}  // namespace macaw::algorithms
