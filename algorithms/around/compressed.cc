#include "algorithms/around/compressed.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/counted_state.h"
#include "algorithms/around/guard.h"
#include "algorithms/around/residual_age.h"
#include "codecs/line.h"
#include "codecs/rotation.h"
#include "core/status.h"
#include "training/api/straggler.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

std::string TextOf(const UpdateConfig& update) {
  return absl::StrCat("update.codec = ", codecs::TextOf(update.codec));
}

const char* NameOf(Feedback feedback) {
  constexpr const char* kNames[] = {"none", "residual", "ef21"};
  return kNames[static_cast<size_t>(feedback)];
}

bool IsCoded(const ChannelSpec& channel, const Setup& setup) {
  return SameLayout(channel.layout.get(), setup.layout.get()) &&
         channel.reduction != Reduction::kMax;
}

// Why the server cannot keep the sum of what all clients sent last; empty: it can.
std::string WhyNoSum(const Description& rule, const Schema& schema, const Setup& setup,
                     const AroundCompression& around) {
  if (around.noised)
    return "[privacy] adds noise to the sum of each round, and the noise of all rounds would add up";
  if (setup.asynchronous)
    return "with round.mode updates are of older models, and ef21's mean is of what clients sent last";
  if (setup.cohort.sampling == "poisson")
    return "cohort.sampling = \"poisson\" divides by the planned weight of a round, and ef21's mean is "
           "of all clients";
  if (setup.with_replacement())
    return absl::StrCat("cohort.sampling = \"", setup.cohort.sampling,
                        "\" may draw a client twice in a round, and it can take only one turn");
  for (const ChannelSpec& channel : schema.up) {
    if (channel.reduction == Reduction::kCollect)
      return absl::StrCat(rule.name, " looks at each client's own update (", channel.name,
                          "), and ef21's server knows their sum alone");
  }
  if (HasStateThatFollows(rule, schema))
    return absl::StrCat(
        "the clients of ", rule.name,
        " keep a state that mirrors what they send in a round, and ef21's mean is of "
        "all clients in every round");
  return "";
}

Feedback FeedbackOf(const Description& rule, const Schema& schema, const UpdateConfig& update,
                    const Setup& setup, const AroundCompression& around, codecs::Bias bias) {
  if (update.feedback == "none") return Feedback::kNone;
  if (update.feedback == "residual") return Feedback::kResidual;
  if (update.feedback == "ef21") return Feedback::kEf21;
  if (bias != codecs::Bias::kLarge || HasStateThatFollows(rule, schema) || rule.has_slices)
    return Feedback::kNone;
  const bool knows_totals = setup.clients > 0 && setup.total_weight > 0;
  if (AllTakePart(setup) || !knows_totals || !WhyNoSum(rule, schema, setup, around).empty())
    return Feedback::kResidual;
  return Feedback::kEf21;
}

absl::Status CheckRuleForCodec(const Description& rule, const Schema& schema, const Setup& setup) {
  if (rule.has_several_models) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is of updates of one model, and the clients of ", rule.name,
        " send one for each of several, most of them zeros, which cost nothing already"));
  }
  if (rule.pools_clients || !rule.has_common_model) {
    return absl::InvalidArgumentError(
        "is for rules whose server uses what clients send, and this one's does not");
  }
  MACAW_RETURN_IF_ERROR(CheckCountedState(rule, schema, "A codec changes that"));
  for (const MetricSpec& metric : schema.metrics) {
    if (metric.name == kUpdateErrorMetric)
      return absl::InvalidArgumentError(
          absl::StrCat("the rule reports a metric '", metric.name, "' of its own"));
  }
  for (const ChannelSpec& channel : schema.up) {
    if (channel.reduction != Reduction::kMax ||
        !SameLayout(channel.layout.get(), setup.layout.get()))
      continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the rule's channel '", channel.name,
        "' takes the largest value of each number, which a codec's errors would move"));
  }
  const auto coded = [&](const ChannelSpec& channel) { return IsCoded(channel, setup); };
  if (std::ranges::none_of(schema.up, coded)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the clients of ", rule.name, " send no vector of the model's tensors"));
  }
  return absl::OkStatus();
}

absl::Status CheckFeedback(const Description& rule, const Schema& schema, const Setup& setup,
                           const AroundCompression& around, Feedback feedback) {
  const auto refuse = [&](absl::string_view why, absl::string_view remedy) {
    return absl::InvalidArgumentError(
        absl::StrCat("update.feedback = \"", NameOf(feedback), "\": ", why, remedy));
  };
  if (feedback == Feedback::kEf21) {
    const std::string why = WhyNoSum(rule, schema, setup, around);
    if (!why.empty())
      return refuse(why, setup.with_replacement() || HasStateThatFollows(rule, schema)
                             ? ": use \"none\""
                             : ": use \"residual\" or \"none\"");
  }
  if (feedback == Feedback::kResidual && HasStateThatFollows(rule, schema)) {
    return refuse(
        absl::StrCat("what a client of ", rule.name,
                     " did not send is not in its own state either, and comes up again by "
                     "itself: a residual would send it twice"),
        ": use \"none\"");
  }
  if (feedback == Feedback::kResidual && setup.with_replacement()) {
    return refuse(
        absl::StrCat("a client keeps what the codec drops, and cohort.sampling = \"",
                     setup.cohort.sampling, "\" may draw it twice in a round"),
        ": set update.feedback = \"none\", take an unbiased codec (randomk, qsgd, bits), or "
        "use cohort.sampling = \"uniform\"");
  }
  return absl::OkStatus();
}

// Bytes that a client keeps.
uint64_t StateBytes(const Compression& compression) {
  uint64_t bytes = 0;
  if (compression.feedback == Feedback::kNone) return bytes;
  for (const ChannelSpec& channel : compression.channels) {
    bytes += channel.layout->bytes();
    if (compression.residual_decay < 1) bytes += ResidualRoundOf(channel.name).layout->bytes();
  }
  return bytes;
}

std::vector<std::string> NotesOnUpdates(const Compression& compression, const UpdateConfig& update,
                                        const Setup& setup) {
  const auto name = [](std::string* out, const ChannelSpec& channel) {
    absl::StrAppend(out, channel.name);
  };
  const Feedback feedback = compression.feedback;
  std::string note = absl::StrCat(
      TextOf(update), " on ", absl::StrJoin(compression.channels, ", ", name), ", update.feedback ",
      update.feedback == "auto" ? "\"auto\" is " : "= ", "\"", NameOf(feedback), "\"");
  if (feedback != Feedback::kNone)
    absl::StrAppend(&note, ": each client keeps ", StateBytes(compression), " bytes");
  if (compression.residual_decay < 1)
    absl::StrAppend(&note, ", and ", compression.residual_decay,
                    " of its residual stays for each round that it is away");
  if (feedback == Feedback::kEf21)
    absl::StrAppend(&note,
                    ", and a round moves the model by the mean of what all clients sent last");
  std::vector<std::string> notes = {std::move(note)};
  const codecs::Bias bias = compression.codec->bias();
  if (compression.rotated && compression.codec->sparse() && bias == codecs::Bias::kLarge) {
    notes.push_back(
        "update.codec: behind \"rotate\" all numbers are of about the same size, so what is left "
        "out is as large as what stays: take a quantiser, or take \"rotate\" out");
  }
  // Behind a rotation the mean of C(v) over its draws is a part of v that is the same for all.
  if (update.feedback == "none" && bias == codecs::Bias::kLarge && !compression.rotated) {
    notes.push_back(
        "update.feedback = \"none\": the codec is biased, so where clients differ the run ends "
        "beside the optimum");
  }
  if (feedback != Feedback::kNone && bias == codecs::Bias::kNone) {
    notes.push_back(
        absl::StrCat("update.feedback = \"", NameOf(feedback),
                     "\": the codec is unbiased and needs none; where its error is larger "
                     "than the update, feedback makes the run diverge"));
  }
  if (feedback == Feedback::kResidual && !AllTakePart(setup)) {
    notes.push_back(absl::StrCat(
        "update.feedback \"residual\" with drawn cohorts gives back old updates as noise: compare it "
        "with \"none\"",
        update.residual_decay < 1 ? "" : ", or let them decay (update.residual_decay)"));
  }
  return notes;
}

}  // namespace

std::string ResidualOf(absl::string_view channel) {
  return absl::StrCat("update_residual_", channel);
}
std::string SentOf(absl::string_view channel) { return absl::StrCat("update_sent_", channel); }
std::string SumOf(absl::string_view channel) { return absl::StrCat("update_sum_", channel); }
std::string RotationOf(absl::string_view channel) {
  return absl::StrCat("update rotation ", channel);
}

bool IsRotated(const UpdateConfig& update) {
  return update.on() && codecs::Line(update.codec.front()).name() == "rotate";
}

bool AllTakePart(const Setup& setup) {
  const CohortConfig& cohort = setup.cohort;
  return setup.clients > 0 && cohort.size >= setup.clients &&
         (cohort.sampling == "uniform" || cohort.sampling == "sweep" ||
          cohort.sampling == "cyclic") &&
         cohort.over_selection <= 1 && training::ShareThatTrains(cohort) >= 1;
}

absl::StatusOr<Compression> Compression::Of(const Description& rule, const Schema& schema,
                                            const UpdateConfig& update, const Setup& setup,
                                            const AroundCompression& around) {
  Compression compression{.clients = static_cast<double>(setup.clients),
                          .total_weight = setup.total_weight,
                          .rule_sums = BeginsAnew(schema)};
  for (const ChannelSpec& channel : schema.up) {
    if (IsCoded(channel, setup)) compression.channels.push_back(channel);
  }
  std::vector<std::string> lines = update.codec;
  MACAW_ASSIGN_OR_RETURN(compression.rotated, codecs::TakeRotation(lines));
  codecs::CodecUse use{.rotated = compression.rotated};
  MACAW_ASSIGN_OR_RETURN(compression.codec, codecs::ParseCodec(lines, use));
  compression.feedback = FeedbackOf(rule, schema, update, setup, around, compression.codec->bias());
  if (compression.feedback != Feedback::kNone) {
    use.scaled = false;
    MACAW_ASSIGN_OR_RETURN(compression.codec, codecs::ParseCodec(lines, use));
  }
  if (compression.feedback == Feedback::kResidual)
    compression.residual_decay = update.residual_decay;
  return compression;
}

Schema WithCompression(Schema schema, const Compression& compression) {
  std::vector<Phase> phases;
  bool in_all = false;
  for (const ChannelSpec& coded : compression.channels) {
    ChannelSpec& sent = *std::ranges::find(schema.up, coded.name, &ChannelSpec::name);
    sent.coded = true;
    sent.levels = compression.codec->levels();
    if (compression.rotated) {
      const auto mixed = static_cast<double>(codecs::MostMixed(*coded.layout));
      sent.bound = std::min(aggregation::kLargestBound, coded.bound * std::sqrt(mixed));
    }
    in_all |= coded.phases.empty();
    for (const Phase phase : coded.phases) {
      if (!std::ranges::count(phases, phase)) phases.push_back(phase);
    }
    if (compression.feedback == Feedback::kResidual)
      schema.state.push_back({ResidualOf(coded.name), coded.layout});
    if (compression.residual_decay < 1) schema.state.push_back(ResidualRoundOf(coded.name));
    if (compression.feedback != Feedback::kEf21) continue;
    schema.state.push_back({.name = SentOf(coded.name), .layout = coded.layout, .summed = true});
    schema.saved.push_back(InDouble(coded.layout));
  }
  if (in_all) phases.clear();
  schema.metrics.push_back({.name = kUpdateErrorMetric,
                            .reduction = Reduction::kMean,
                            .bound = kMostError,
                            .phases = std::move(phases)});
  return schema;
}

Description Compressed(const Description& rule, const UpdateConfig& update,
                       AroundCompression around) {
  struct Inside {
    Schema schema;
    Compression compression;
  };
  const auto look = [rule, update, around](const Setup& setup) -> absl::StatusOr<Inside> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(setup));
    schema.whose = WhoseOf(rule);
    MACAW_ASSIGN_OR_RETURN(Compression compression,
                           Compression::Of(rule, schema, update, setup, around));
    return Inside{std::move(schema), std::move(compression)};
  };
  Description result = rule;
  // Residuals and g_i mirror what is sent, and follow it. A state of the rule itself does, too, or
  // is independent, or the rule is refused.
  result.state_follows_sent = true;
  result.check = [rule, update, around, look](const Setup& setup) -> absl::Status {
    if (rule.check) MACAW_RETURN_IF_ERROR(rule.check(setup));
    const absl::StatusOr<Inside> inside = look(setup);
    absl::Status status = inside.status();
    if (status.ok()) status = CheckRuleForCodec(rule, inside->schema, setup);
    if (status.ok())
      status = CheckFeedback(rule, inside->schema, setup, around, inside->compression.feedback);
    if (status.ok())
      status = CheckDecay(update, inside->compression.feedback == Feedback::kResidual);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(absl::StrCat(TextOf(update), ": ", status.message()));
  };
  result.notes = [rule, update, look, check = result.check](const Setup& setup) {
    std::vector<std::string> notes;
    if (rule.notes) notes = rule.notes(setup);
    if (!check(setup).ok()) return notes;  // the run will be refused
    for (std::string& note : NotesOnUpdates(look(setup)->compression, update, setup))
      notes.push_back(std::move(note));
    return notes;
  };
  result.totals = [rule, look](const Setup& setup) {
    TotalsUsed used{.clients = !rule.plugin.empty(), .weight = !rule.plugin.empty()};
    if (rule.totals) used = rule.totals(setup);
    const absl::StatusOr<Inside> inside = look(setup);
    if (!inside.ok() || inside->compression.feedback != Feedback::kEf21) return used;
    for (const ChannelSpec& channel : inside->compression.channels) {
      used.clients |= channel.reduction != Reduction::kWeightedMean;
      used.weight |= channel.reduction == Reduction::kWeightedMean;
    }
    return used;
  };
  result.schema = [look](const Setup& setup) -> absl::StatusOr<Schema> {
    MACAW_ASSIGN_OR_RETURN(Inside inside, look(setup));
    return WithCompression(std::move(inside.schema), inside.compression);
  };
  result.client = [rule,
                   look](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Inside inside, look(setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, rule.client(setup));
    return MakeCompressedClient(std::move(inner), std::move(inside.compression));
  };
  result.server = [rule, look](
                      const Setup& setup,
                      FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Inside inside, look(setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> inner,
                           rule.server(setup, std::move(model)));
    if (inside.compression.feedback == Feedback::kEf21)
      inner = MakeCompressedServer(std::move(inner), inside.compression);
    if (inside.compression.rotated)
      inner = MakeRotatedServer(std::move(inner), std::move(inside.compression));
    return inner;
  };
  return result;
}

}  // namespace macaw::algorithms
