#include "algorithms/around/attack.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/channels.h"
#include "core/status.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

LayoutPtr ShareLayout() {
  static const LayoutPtr& layout =
      *new LayoutPtr(ParameterLayout::Scalars("value", 1, DType::kF64));
  return layout;
}

// BesideUpdates of the rule itself.
absl::StatusOr<std::vector<std::string>> BesideOf(const Description& own, const Setup& setup) {
  if (own.has_statistics) return std::vector<std::string>();
  MACAW_ASSIGN_OR_RETURN(const Schema schema, own.schema(setup));
  return BesideUpdates(schema, setup.layout);
}

bool Collects(const ChannelSpec& channel) { return channel.reduction == Reduction::kCollect; }

// Why a rule is refused that trusts a hostile client; names an honest one.
std::string HostileRoot(const Trusted& trusted, const HostileClients& hostile) {
  ClientId honest;
  while (hostile.Contains(honest)) ++honest.value;
  return absl::StrCat("client ", trusted.client.value, ", which ", trusted.key,
                      " trusts, is among the hostile ones of this seed: set it to an honest one, ",
                      "such as ", honest.value);
}

absl::Status CheckAttack(const Description& rule, const Setup& setup, const Attack& attack) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("attack.kind = \"", attack.config.kind, "\": ", why));
  };
  if (attack.hostile.clients() == 0)
    return refuse("the number of clients must be known (run.clients) to draw the hostile ones");
  if (rule.pools_clients) return refuse("one client has all training rows, so none can be hostile");
  if (rule.has_several_models && (attack.config.omniscient() || attack.config.backdoor()))
    return refuse(
        "it is of clients that share one model; take label-flip, sign-flip, scaling or "
        "free-rider");
  if (!rule.shares_models())
    return refuse("the clients share no model, so a hostile client harms no other");
  if (attack.config.changes_rows() && setup.task != TaskKind::kClassification &&
      setup.task != TaskKind::kBinary) {
    return refuse(absl::StrCat("run.task is \"", Name(setup.task), "\", and labels are ",
                               attack.config.backdoor() ? "changed" : "flipped", " among classes"));
  }
  if (rule.trusts) {
    const Trusted trusted = rule.trusts(setup);
    if (attack.Hits(trusted.client)) return refuse(HostileRoot(trusted, attack.hostile));
  }
  return absl::OkStatus();
}

// A deviation needs the sum of squares, whose bound is that of the channel, squared.
absl::Status CheckSquares(const ChannelSpec& channel, const Setup& setup) {
  const double squared = channel.bound * channel.bound;
  if (squared >= aggregation::kSmallestBound && squared <= aggregation::kLargestBound)
    return absl::OkStatus();
  const bool ours = channel.bound == setup.contribution_bound;
  return absl::InvalidArgumentError(absl::StrCat(
      ours ? "run.contribution_bound is "
           : absl::StrCat("the bound of the rule's channel '", channel.name, "' is "),
      channel.bound,
      ", and attack.kind = \"alie\" adds up squares of what it bounds: it must lie in [",
      std::sqrt(aggregation::kSmallestBound), ", ", std::sqrt(aggregation::kLargestBound), "]"));
}

// Those that know what honest clients send need a mean, or each vector.
absl::Status CheckChannels(const Schema& schema, const Setup& setup, const AttackConfig& attack) {
  if (!attack.omniscient()) return absl::OkStatus();
  if (attack.takes_rows() && setup.with_replacement()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attack.kind = \"", attack.kind,
        "\" looks at each client's own update, and "
        "cohort.sampling = \"",
        setup.cohort.sampling, "\" may draw a client twice in a round; use \"uniform\""));
  }
  for (const ChannelSpec& channel : schema.up) {
    if (attack.kind == "alie" && !Collects(channel))
      MACAW_RETURN_IF_ERROR(CheckSquares(channel, setup));
    if (channel.reduction != Reduction::kMax) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "attack.kind = \"", attack.kind, "\" needs the honest clients' mean, and the rule's ",
        "channel '", channel.name, "' takes the largest value; use \"sign-flip\" or \"scaling\""));
  }
  return absl::OkStatus();
}

std::string NoteOf(const Setup& setup, const Attack& attack) {
  const uint64_t count = attack.hostile.count(), clients = attack.hostile.clients();
  std::string note = absl::StrCat(
      "attack.kind = \"", attack.config.kind, "\": ", count, " of ", clients, " clients ",
      count == 1 ? "is" : "are", " hostile",
      count > 0 ? ", the same in every round" : " (attack.fraction leaves less than one)");
  if (setup.cohort.size < clients)
    absl::StrAppend(&note, "; how many of a round's ", setup.cohort.size, ": rule_attackers");
  return note;
}

// The note on alie's z with the average number of hostile clients; empty for other attacks.
std::string DeviationsNote(const Setup& setup, const Attack& attack) {
  if (attack.config.kind != "alie" || attack.hostile.count() == 0) return "";
  const auto clients = static_cast<double>(attack.hostile.clients());
  const double n = std::min(static_cast<double>(setup.cohort.size), clients);
  const double m = std::round(static_cast<double>(attack.hostile.count()) * n / clients);
  const double z = attack.config.z.value_or(AlieDeviations(n, m));
  std::string note = absl::StrFormat(
      "attack.kind = \"alie\": with %g of a round's %g clients hostile, they send the honest mean "
      "less %.3g standard deviations%s",
      m, n, z, attack.config.z.has_value() ? "" : "; each round's are rule_attack_z");
  if (z == 0) {
    absl::StrAppend(&note,
                    ". That is the honest mean itself and no attack: so few cannot make a majority "
                    "in the paper's way. Raise attack.fraction, or set attack.z");
  }
  return note;
}

// Of an attack with more hostile clients in a round than the rule withstands; empty: there are not
// more on average.
std::string TooManyNote(const Description& rule, const Setup& setup, const Attack& attack) {
  const uint64_t count = attack.hostile.count(), clients = attack.hostile.clients();
  if (!rule.withstands || count == 0) return "";
  const Withstood withstood = rule.withstands(setup);
  const bool all = setup.cohort.size >= clients;
  const double share = static_cast<double>(count) / static_cast<double>(clients);
  const double expected = share * static_cast<double>(std::min(setup.cohort.size, clients));
  if (expected <= static_cast<double>(withstood.clients)) return "";
  return absl::StrCat(
      absl::StrFormat("%.3g", expected), all ? " clients" : " clients on average", " of a round's ",
      std::min(setup.cohort.size, clients), " are hostile, and ", rule.name, " withstands ",
      withstood.clients, withstood.key.empty() ? "" : absl::StrCat(" (", withstood.key, ")"),
      withstood.key.empty() ? ": lower attack.fraction" : ": raise that, or lower attack.fraction");
}

}  // namespace

std::vector<std::string> BesideUpdates(const Schema& own, const LayoutPtr& model) {
  std::vector<std::string> beside;
  for (const ChannelSpec& channel : own.up) {
    if (!SameLayout(channel.layout.get(), model.get())) beside.push_back(channel.name);
  }
  if (beside.size() == own.up.size()) beside.clear();
  return beside;
}

std::string SquaresOf(absl::string_view channel) {
  return absl::StrCat("attack_squares_", channel);
}

std::string EachOf(absl::string_view channel) { return absl::StrCat("attack_each_", channel); }

Schema WithAttack(Schema schema, const AttackConfig& attack) {
  schema.metrics.push_back({.name = kAttackersMetric,
                            .reduction = Reduction::kFixedSum,
                            .bound = 1,
                            .phases = {Phase(0)}});
  if (!attack.omniscient()) return schema;
  if (attack.kind == "alie")
    schema.metrics.push_back({.name = kDeviationsMetric, .reduction = std::nullopt});
  if (attack.takes_distances())
    schema.metrics.push_back({.name = kGammaMetric, .reduction = std::nullopt});
  std::vector<ChannelSpec> added;
  // In every phase that has a sum.
  std::vector<Phase> phases;
  bool in_all = false;
  for (const ChannelSpec& channel : schema.up) {
    if (Collects(channel)) continue;
    in_all |= channel.phases.empty();
    for (const Phase phase : channel.phases) {
      if (!std::ranges::count(phases, phase)) phases.push_back(phase);
    }
    if (attack.takes_rows()) {
      added.push_back({.name = EachOf(channel.name),
                       .layout = channel.layout,
                       .reduction = Reduction::kCollect,
                       .bound = channel.bound,
                       .phases = channel.phases});
    }
    if (attack.kind != "alie") continue;
    const bool weighted = channel.reduction == Reduction::kWeightedMean;
    added.push_back({.name = SquaresOf(channel.name),
                     .layout = InDouble(channel.layout),
                     .reduction = weighted ? Reduction::kWeightedMean : Reduction::kMean,
                     .bound = channel.bound * channel.bound,
                     .phases = channel.phases});
  }
  if (in_all) phases.clear();
  if (in_all || !phases.empty()) {
    for (const auto& [name, reduction] : {std::pair(kHonestCount, Reduction::kMean),
                                          std::pair(kHonestWeight, Reduction::kWeightedMean)}) {
      added.push_back({.name = name,
                       .layout = ShareLayout(),
                       .reduction = reduction,
                       .bound = 1024,
                       .phases = phases});
    }
  }
  schema.up.insert(schema.up.end(), added.begin(), added.end());
  return schema;
}

Description Attacked(Description rule, const AttackConfig& config, HostileClients hostile,
                     const Description* own) {
  const Description itself = own == nullptr ? rule : *own;
  const auto attack =
      std::make_shared<const Attack>(Attack{.config = config, .hostile = std::move(hostile)});
  Description attacked = rule;
  attacked.check = [rule, attack](const Setup& setup) -> absl::Status {
    if (rule.check) MACAW_RETURN_IF_ERROR(rule.check(setup));
    MACAW_RETURN_IF_ERROR(CheckAttack(rule, setup, *attack));
    MACAW_ASSIGN_OR_RETURN(const Schema schema, rule.schema(setup));
    return CheckChannels(schema, setup, attack->config);
  };
  attacked.notes = [rule, attack](const Setup& setup) {
    std::vector<std::string> notes;
    if (rule.notes) notes = rule.notes(setup);
    notes.push_back(NoteOf(setup, *attack));
    if (std::string note = DeviationsNote(setup, *attack); !note.empty())
      notes.push_back(std::move(note));
    if (std::string note = TooManyNote(rule, setup, *attack); !note.empty())
      notes.push_back(std::move(note));
    return notes;
  };
  attacked.schema = [rule, attack](const Setup& setup) -> absl::StatusOr<Schema> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(setup));
    return WithAttack(std::move(schema), attack->config);
  };
  attacked.client = [rule, itself, attack](
                        const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(const Schema schema, rule.schema(setup));
    MACAW_ASSIGN_OR_RETURN(std::vector<std::string> beside, BesideOf(itself, setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, rule.client(setup));
    return MakeAttackedClient(std::move(inner), attack, schema, setup.layout, std::move(beside));
  };
  if (!config.omniscient()) return attacked;
  attacked.server = [rule, itself, attack](
                        const Setup& setup,
                        FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(setup));
    MACAW_ASSIGN_OR_RETURN(std::vector<std::string> beside, BesideOf(itself, setup));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> inner,
                           rule.server(setup, std::move(model)));
    return MakeAttackedServer(std::move(inner), attack, std::move(schema), std::move(beside));
  };
  return attacked;
}

}  // namespace macaw::algorithms
