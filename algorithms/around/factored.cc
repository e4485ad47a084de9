#include "algorithms/around/factored.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/counted_state.h"
#include "algorithms/around/guard.h"
#include "algorithms/around/residual_age.h"
#include "codecs/line.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

constexpr char kAcpSgd[] = "acpsgd", kPowerSgd[] = "powersgd";
constexpr uint64_t kMostRank = 256;

absl::StatusOr<uint32_t> RankOf(const UpdateConfig& update) {
  codecs::Line line(update.codec.front());
  if (update.codec.size() > 1) {
    return absl::InvalidArgumentError(
        "update.codec: \"acpsgd RANK\" and \"powersgd RANK\" stand alone; take the other lines "
        "out");
  }
  MACAW_ASSIGN_OR_RETURN(const uint64_t rank, line.Whole("the rank", 1, kMostRank));
  MACAW_RETURN_IF_ERROR(line.End(absl::StrCat("\"", line.name(), " RANK\"")));
  return static_cast<uint32_t>(rank);
}

bool HasFactors(const ChannelSpec& channel, const Setup& setup) {
  return SameLayout(channel.layout.get(), setup.layout.get()) &&
         (channel.reduction == Reduction::kWeightedMean || channel.reduction == Reduction::kMean ||
          channel.reduction == Reduction::kFixedSum);
}

absl::Status CheckFactored(const Description& rule, const Schema& schema,
                           const UpdateConfig& update, const Setup& setup, bool noised) {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("update.codec = [\"", update.codec.front(), "\"]: ", why...));
  };
  if (noised)
    return refuse("[privacy] clips updates of the model's layout: take one of the two out");
  if (rule.has_several_models)
    return refuse("it is of updates of one model, and the clients of ", rule.name,
                  " send one for each of several");
  if (rule.pools_clients || !rule.has_common_model)
    return refuse("it is for rules whose server uses what clients send, and ", rule.name,
                  "'s does not");
  if (const absl::Status status = CheckCountedState(rule, schema, "A codec changes that");
      !status.ok())
    return refuse(status.message());
  for (const ChannelSpec& channel : schema.up) {
    if (!SameLayout(channel.layout.get(), setup.layout.get())) continue;
    if (!HasFactors(channel, setup))
      return refuse("the channel '", channel.name, "' of ", rule.name,
                    " is no sum, and factors of a sum say nothing of one client: take \"topk\"");
  }
  const auto in_some = [](const auto& item) { return !item.phases.empty(); };
  if (std::ranges::any_of(schema.up, in_some) || std::ranges::any_of(schema.down, in_some))
    return refuse(rule.name, " has several phases a round, and factors are of rules with one");
  if (codecs::Line(update.codec.front()).name() == kPowerSgd && HasStateThatFollows(rule, schema))
    return refuse("the clients of ", rule.name,
                  " keep a state that mirrors what is counted, which is known in the second phase "
                  "only: take \"acpsgd\"");
  if (update.feedback == "ef21")
    return refuse(
        "update.feedback = \"ef21\" is for codecs of one client: use \"residual\" or "
        "\"none\"");
  if (update.feedback == "residual" && HasStateThatFollows(rule, schema))
    return refuse("the clients of ", rule.name,
                  " keep a state that mirrors what was counted, so the rest comes up again by "
                  "itself, and a residual would send it twice: use \"none\"");
  for (const MetricSpec& metric : schema.metrics) {
    if (metric.name == kUpdateErrorMetric || (update.adapt > 0 && metric.name == kUpdateRankMetric))
      return refuse("the rule reports a metric '", metric.name, "' of its own");
  }
  if (update.feedback == "residual" && setup.with_replacement())
    return refuse("a client keeps what the factors leave out, and cohort.sampling = \"",
                  setup.cohort.sampling, "\" may draw it twice in a round: use \"none\"");
  return absl::OkStatus();
}

// Their mean is of the weights that the mean of the M_i has. A sum's divisor changes no choice.
ChannelSpec ErrorsChannelOf(const FactoredChannel& channel) {
  // ‖M‖² ≤ n·m·bound².
  const double most = channel.spec.bound * static_cast<double>(channel.form.LongestSum());
  return {.name = ErrorsOf(channel.spec.name),
          .layout = channel.form.errors(),
          .reduction = channel.spec.reduction == Reduction::kWeightedMean ? Reduction::kWeightedMean
                                                                          : Reduction::kMean,
          .bound = std::min(aggregation::kLargestBound, most * most)};
}

std::string NoteOnRanks(const Factoring& factoring) {
  const codecs::LowRank& form = factoring.channels.front().form;
  const uint32_t most = form.MostRank(), a = factoring.adapt;
  std::string note =
      absl::StrCat("update.adapt = ", a, ": after the rounds 1, ", uint64_t{a} + 1, ", ",
                   2 * uint64_t{a} + 1, ", ... the server chooses the ranks of ", form.matrices(),
                   form.matrices() == 1 ? " matrix" : " matrices", ", from ", form.LeastRank(),
                   " to ", most, ", for as many numbers as rank ", form.rank(), " takes or fewer");
  if (most == form.rank()) {
    absl::StrAppend(&note, "; none has room for more than rank ", most,
                    ", so ranks fall only where nothing is lost: a smaller RANK leaves room");
  } else if (form.matrices() == 1) {
    absl::StrAppend(&note,
                    "; ranks are moved between matrices, and a single one's falls only where "
                    "nothing is lost");
  }
  return note;
}

std::vector<std::string> NotesOnFactors(const Factoring& factoring, const UpdateConfig& update) {
  uint64_t whole = 0, sent = 0, kept = 0;
  for (const FactoredChannel& channel : factoring.channels) {
    whole += channel.spec.layout->count();
    sent += channel.form.MostSent(factoring.two_phases);
    if (factoring.keeps()) kept += channel.spec.layout->bytes();
    if (factoring.residual_decay < 1) kept += ResidualRoundOf(channel.spec.name).layout->bytes();
  }
  std::string note = absl::StrCat("update.codec = [\"", update.codec.front(), "\"]: at most ", sent,
                                  " numbers of ", whole, " travel up, update.feedback ",
                                  update.feedback == "auto" ? "\"auto\" is " : "= ",
                                  factoring.residual ? "\"residual\"" : "\"none\"");
  if (kept > 0) absl::StrAppend(&note, ": each client keeps ", kept, " bytes");
  std::vector<std::string> notes = {std::move(note)};
  if (factoring.adapt > 0) notes.push_back(NoteOnRanks(factoring));
  return notes;
}

}  // namespace

bool IsFactored(const UpdateConfig& update) {
  return std::ranges::any_of(update.codec, [](const std::string& text) {
    const std::string name = codecs::Line(text).name();
    return name == kAcpSgd || name == kPowerSgd;
  });
}

std::string FactorOf(absl::string_view channel) { return absl::StrCat(channel, "_factor"); }
std::string RestOf(absl::string_view channel) { return absl::StrCat(channel, "_rest"); }
std::string BasisOf(absl::string_view channel) { return absl::StrCat(channel, "_basis"); }
std::string ErrorsOf(absl::string_view channel) { return absl::StrCat(channel, "_errors"); }

codecs::Factor Factoring::Sent(Round round, Phase phase) const {
  const bool p = two_phases ? phase == kFirst : round.value % 2 == 1;
  return p ? codecs::Factor::kP : codecs::Factor::kQ;
}

std::string Factoring::KeptOf(absl::string_view channel) const {
  return two_phases ? absl::StrCat("update_matrix_", channel) : ResidualOf(channel);
}

absl::StatusOr<Factoring> Factoring::Of(const Description& rule, const Schema& schema,
                                        const UpdateConfig& update, const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(const uint32_t rank, RankOf(update));
  Factoring factoring{.two_phases = codecs::Line(update.codec.front()).name() == kPowerSgd,
                      .adapt = update.adapt,
                      .seed = setup.seed};
  const codecs::Ranks ranks = update.adapt > 0 ? codecs::Ranks::kChosen : codecs::Ranks::kFixed;
  for (const ChannelSpec& channel : schema.up) {
    if (!HasFactors(channel, setup)) continue;
    absl::StatusOr<codecs::LowRank> form = codecs::LowRank::Make(channel.layout, rank, ranks);
    if (!form.ok())
      return Annotate(form.status(),
                      absl::StrCat("update.codec = [\"", update.codec.front(), "\"]"));
    factoring.channels.push_back({channel, *std::move(form)});
  }
  if (factoring.channels.empty())
    return absl::InvalidArgumentError(absl::StrCat("update.codec = [\"", update.codec.front(),
                                                   "\"]: the rule's clients send no vector of the "
                                                   "model's tensors"));
  // The mean of the factors is the factor of the mean, so drawn clients lose nothing of each other,
  // and what they keep would come back as noise.
  factoring.residual =
      update.feedback == "residual" ||
      (update.feedback == "auto" && AllTakePart(setup) && !HasStateThatFollows(rule, schema));
  if (factoring.residual) factoring.residual_decay = update.residual_decay;
  return factoring;
}

Schema WithFactors(Schema schema, const Factoring& factoring) {
  for (const FactoredChannel& channel : factoring.channels) {
    const auto place = std::ranges::find(schema.up, channel.spec.name, &ChannelSpec::name);
    ChannelSpec factor = channel.spec, rest = channel.spec;
    factor.name = FactorOf(channel.spec.name);
    factor.layout = channel.form.factor();
    factor.coded =
        factoring.adapt > 0;  // columns beyond a rank are zeros: bytes are counted without
    // |Σ_j M_ij Q_jk| ≤ ‖row of M‖ ≤ √m · bound.
    factor.bound =
        std::min(aggregation::kLargestBound,
                 channel.spec.bound * std::sqrt(static_cast<double>(channel.form.LongestSum())));
    *place = std::move(factor);
    if (channel.form.rest() != nullptr) {
      rest.name = RestOf(channel.spec.name);
      rest.layout = channel.form.rest();
      schema.up.push_back(std::move(rest));
    }
    if (factoring.adapt > 0) schema.up.push_back(ErrorsChannelOf(channel));
    // Its unused columns, and what the shorter side leaves of a tensor, are zeros.
    schema.down.push_back(
        {.name = BasisOf(channel.spec.name), .layout = channel.form.factor(), .coded = true});
    if (factoring.keeps())
      schema.state.push_back({factoring.KeptOf(channel.spec.name), channel.spec.layout});
    if (factoring.residual_decay < 1) schema.state.push_back(ResidualRoundOf(channel.spec.name));
  }
  MetricSpec error{.name = kUpdateErrorMetric, .reduction = Reduction::kMean, .bound = kMostError};
  if (factoring.two_phases) {
    // All that is the rule's own is of the first phase; the model is sent in every one.
    for (ChannelSpec& channel : schema.up) channel.phases = {kFirst};
    for (size_t i = 1; i < schema.down.size(); ++i) schema.down[i].phases = {kFirst};
    for (MetricSpec& metric : schema.metrics) metric.phases = {kFirst};
    for (const FactoredChannel& channel : factoring.channels) {
      std::ranges::find(schema.up, FactorOf(channel.spec.name), &ChannelSpec::name)->phases = {};
      std::ranges::find(schema.down, BasisOf(channel.spec.name), &DownChannel::name)->phases = {};
    }
    error.phases = {kSecond};
  }
  schema.metrics.push_back(std::move(error));
  if (factoring.adapt > 0) schema.metrics.push_back({kUpdateRankMetric, std::nullopt});
  return schema;
}

Description Factored(const Description& rule, const UpdateConfig& update, bool noised) {
  struct Inside {
    Schema schema;
    Factoring factoring;
  };
  const auto look = [rule, update](const Setup& setup) -> absl::StatusOr<Inside> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(setup));
    schema.whose = WhoseOf(rule);
    MACAW_ASSIGN_OR_RETURN(Factoring factoring, Factoring::Of(rule, schema, update, setup));
    return Inside{std::move(schema), std::move(factoring)};
  };
  Description result = rule;
  result.check = [rule, update, noised, look](const Setup& setup) -> absl::Status {
    if (rule.check) MACAW_RETURN_IF_ERROR(rule.check(setup));
    MACAW_ASSIGN_OR_RETURN(const Schema schema, rule.schema(setup));
    MACAW_RETURN_IF_ERROR(CheckFactored(rule, schema, update, setup, noised));
    MACAW_ASSIGN_OR_RETURN(const Inside inside, look(setup));
    return Annotate(CheckDecay(update, inside.factoring.residual),
                    absl::StrCat("update.codec = [\"", update.codec.front(), "\"]"));
  };
  result.notes = [rule, update, look](const Setup& setup) {
    std::vector<std::string> notes;
    if (rule.notes) notes = rule.notes(setup);
    const absl::StatusOr<Inside> inside = look(setup);
    if (!inside.ok()) return notes;  // the run will be refused
    for (std::string& note : NotesOnFactors(inside->factoring, update))
      notes.push_back(std::move(note));
    return notes;
  };
  result.schema = [look](const Setup& setup) -> absl::StatusOr<Schema> {
    MACAW_ASSIGN_OR_RETURN(Inside inside, look(setup));
    return WithFactors(std::move(inside.schema), inside.factoring);
  };
  result.client = [rule,
                   look](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Inside inside, look(setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, rule.client(setup));
    return MakeFactoredClient(std::move(inner), std::move(inside.factoring));
  };
  result.server = [rule, look](
                      const Setup& setup,
                      FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Inside inside, look(setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> inner,
                           rule.server(setup, std::move(model)));
    return MakeFactoredServer(std::move(inner), std::move(inside.factoring));
  };
  return result;
}

}  // namespace macaw::algorithms
