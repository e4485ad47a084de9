#include "algorithms/around/registry.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "algorithms/around/asynchronous.h"
#include "algorithms/around/attack.h"
#include "algorithms/around/channels.h"
#include "algorithms/around/coded_broadcast.h"
#include "algorithms/around/compressed.h"
#include "algorithms/around/drift.h"
#include "algorithms/around/factored.h"
#include "algorithms/around/frozen.h"
#include "algorithms/around/guard.h"
#include "algorithms/around/majority.h"
#include "algorithms/around/privacy.h"
#include "core/logging.h"
#include "core/spelling.h"
#include "core/status.h"
#include "training/api/schedule.h"

namespace macaw::algorithms {
namespace {

// "; did you mean 'x'?" if a name is similar, then all names.
std::string Suggestion(absl::string_view wrong, const std::vector<std::string>& names) {
  if (names.empty()) return "; it takes none";
  const std::string nearest = NearestWord(wrong, names);
  return absl::StrCat(nearest.empty() ? "; there are: "
                                      : absl::StrCat("; did you mean '", nearest, "'? There are: "),
                      absl::StrJoin(names, ", "));
}

const char* TypeName(const ParameterValue& value) {
  constexpr const char* kNames[] = {"true or false", "a whole number", "a number", "a string"};
  return kNames[value.index()];
}

std::optional<double> AsNumber(const ParameterValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

// Converts a value to the parameter's own type: an integer is accepted for a number.
absl::StatusOr<ParameterValue> Convert(const ParameterSpec& spec, ParameterValue value) {
  if (std::holds_alternative<double>(spec.default_value) &&
      std::holds_alternative<int64_t>(value)) {
    value = static_cast<double>(std::get<int64_t>(value));
  }
  if (value.index() != spec.default_value.index()) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be ", TypeName(spec.default_value), ", not ", TypeName(value)));
  }
  if (const std::optional<double> number = AsNumber(value)) {
    if (!std::isfinite(*number)) return absl::InvalidArgumentError("must be finite");
    if (spec.minimum && *number < *spec.minimum) {
      return absl::InvalidArgumentError(
          absl::StrCat("must be at least ", *spec.minimum, ", not ", *number));
    }
    if (spec.minimum && spec.open_minimum && *number == *spec.minimum)
      return absl::InvalidArgumentError(absl::StrCat("must be above ", *spec.minimum));
    if (spec.maximum && *number > *spec.maximum) {
      return absl::InvalidArgumentError(
          absl::StrCat("must be at most ", *spec.maximum, ", not ", *number));
    }
  }
  if (const auto* text = std::get_if<std::string>(&value);
      text != nullptr && !spec.choices.empty()) {
    if (!std::ranges::count(spec.choices, *text)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot be '", *text, "'", Suggestion(*text, spec.choices)));
    }
  }
  if (spec.check) MACAW_RETURN_IF_ERROR(spec.check(value));
  return value;
}

// A rule whose clients send only what they train of the model. [privacy] refuses it by its
// channels.
absl::Status CheckAroundSlices(const Description& rule, const RunPlan& run) {
  const auto refuse = [&](absl::string_view key, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(
        key, ": the clients of ", rule.name,
        " send only the part of the model that they train, and the mean of each coordinate is over "
        "those who train it; ",
        why));
  };
  if (run.evaluation.updates)
    return refuse("evaluation.updates", "it tells of means over all: take it out");
  if (run.attack.on() && run.attack.omniscient()) {
    return refuse("attack.kind", "this attack is made of means over all clients: use another one");
  }
  if (run.attack.on() && run.attack.kind == "free-rider") {
    return refuse("attack.kind", "a free-rider trains no part: use another attack");
  }
  if (IsFactored(run.update) || IsRotated(run.update)) {
    return refuse("update.codec",
                  "this codec mixes coordinates: use one that keeps zeros, such as \"topk\" or "
                  "\"bits\"");
  }
  if (run.update.on() && run.update.feedback != "auto" && run.update.feedback != "none") {
    return refuse(
        "update.feedback",
        "what a codec left out in one turn would be sent in another one, whose part may be "
        "smaller: set \"none\"");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Registry::Add(Description description) {
  if (description.name.empty() || !description.schema || !description.server ||
      !description.client) {
    return absl::InvalidArgumentError(
        absl::StrCat("algorithm '", description.name,
                     "' needs a name, a schema, a server half and a client half"));
  }
  for (const ParameterSpec& spec : description.parameters) {
    const auto named = [&spec](const ParameterSpec& other) { return other.name == spec.name; };
    if (std::ranges::count_if(description.parameters, named) != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "algorithm '", description.name, "' declares parameter '", spec.name, "' twice"));
    }
    if (absl::Status status = Convert(spec, spec.default_value).status(); !status.ok()) {
      return Annotate(status,
                      absl::StrCat("the default of algorithm.", description.name, ".", spec.name));
    }
  }
  const std::string name = description.name;
  if (!descriptions_.emplace(name, Guard(std::move(description))).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is an algorithm '", name, "' already; choose another name"));
  }
  return absl::OkStatus();
}

namespace {

// What is wrong with a client that no round draws.
std::string WhyNotDrawn(const Setup& setup) {
  const uint32_t least = std::max(LeastRows(setup.local), setup.cohort.min_rows.value_or(1));
  std::string why = "has no rows to train on";
  if (least > 1) {
    why = absl::StrCat("has fewer training rows than ", least, " (",
                       setup.cohort.min_rows == least ? "cohort.min_rows"
                                                      : "local.drop_last with local.batch_size",
                       ")");
  }
  if (!setup.cohort.eligible.empty()) absl::StrAppend(&why, " or is not in cohort.eligible");
  return why;
}

// Refuses a run of which no client has as many batches as a step takes.
absl::Status CheckBatches(const Description& rule, const Setup& setup,
                          std::span<const uint32_t> rows) {
  const auto trains = [](uint32_t count) { return count > 0; };
  const auto steps = [&](uint32_t count) {
    return trains(count) && StepsOf(setup.local, count) >= rule.batches_a_step;
  };
  if (std::ranges::none_of(rows, trains) || std::ranges::any_of(rows, steps))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a step of algorithm \"", rule.name, "\" takes ", rule.batches_a_step,
      " batches, and no client has so many in a round, so the model would never move: set "
      "local.epochs = ",
      rule.batches_a_step, ", or a smaller local.batch_size"));
}

}  // namespace

absl::Status CheckRows(const Description& description, const Setup& setup,
                       std::span<const uint32_t> rows) {
  MACAW_RETURN_IF_ERROR(CheckBatches(description, setup, rows));
  const auto has_rows = [rows](uint64_t client) {
    return client < rows.size() && rows[client] > 0;
  };
  if (description.trusts) {
    const Trusted trusted = description.trusts(setup);
    if (!has_rows(trusted.client.value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          trusted.key, " = ", trusted.client.value, ": that client ", WhyNotDrawn(setup),
          ", and a round without it leaves the model as it is: name another one"));
    }
  }
  // A rule that draws its clients' levels does not compute with N: it gives no numbers (levels.h).
  if (!description.numbers_clients || !TotalsOf(description, setup).clients)
    return absl::OkStatus();
  const auto empty = std::ranges::find(rows, 0U);
  const auto behind = std::find_if(empty, rows.end(), [](uint32_t count) { return count > 0; });
  if (behind == rows.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "algorithm \"", description.name, "\" numbers the clients that train from 0, and client ",
      empty - rows.begin(), " ", WhyNotDrawn(setup), ", while client ", behind - rows.begin(),
      " can be drawn: give each enough rows (partition.min_size), ",
      setup.config.parameters.contains("assign")
          ? absl::StrCat("set algorithm.", description.name, ".assign = \"once\", ")
          : "",
      "or take those without out of the data"));
}

Setup SetupOf(const RunPlan& run, LayoutPtr layout) {
  LocalConfig local = run.local;
  local.lr_schedule = training::LocalSchedule(run);
  return {.config = run.algorithm,
          .layout = std::move(layout),
          .model = run.model,
          .local = std::move(local),
          .cohort = run.cohort,
          .clients = TrainClients(run),
          .total_weight = TotalWeight(run),
          .contribution_bound = run.contribution_bound,
          .seed = run.seed,
          .task = run.task,
          .asynchronous = run.asynchronous.on()};
}

TotalsUsed TotalsOf(const Description& description, const Setup& setup) {
  TotalsUsed used{.clients = !description.plugin.empty(), .weight = !description.plugin.empty()};
  if (description.totals) used = description.totals(setup);
  // q·W = size/N · Σ w_i. With equal weights that is the cohort's size, whatever N is.
  if (setup.cohort.sampling == "poisson" && setup.cohort.weight != WeightPolicy::kUniform)
    used = {.clients = true, .weight = true};
  return used;
}

absl::StatusOr<Schema> SchemaOf(const Description& description, const Setup& setup) {
  MACAW_ASSIGN_OR_RETURN(Schema schema, description.schema(setup));
  schema.whose = WhoseOf(description);
  MACAW_RETURN_IF_ERROR(Annotate(CheckSchema(schema, setup.layout), schema.whose));
  return schema;
}

absl::Status CheckNeeded(const Description& description, const Setup& setup, uint64_t enough) {
  if (!description.needs) return absl::OkStatus();
  const Needed needed = description.needs(setup);
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(
        "algorithm ", description.name, " needs ", needed.clients, " clients in a round (",
        needed.why, "), or it leaves the model as it is: ", why...));
  };
  if (enough > 0 && enough < needed.clients)
    return refuse("round.enough = ", enough, " closes rounds with fewer; set it to ",
                  needed.clients, " or more");
  const uint64_t most = MostClients(setup);
  if (most >= needed.clients) return absl::OkStatus();
  const CohortConfig& cohort = setup.cohort;
  if (cohort.straggler_policy == "drop" && cohort.straggler_fraction >= 1)
    return refuse(
        "cohort.straggler_fraction = 1 with cohort.straggler_policy = \"drop\" leaves none");
  if (setup.clients > 0 && setup.clients < needed.clients)
    return refuse("only ", setup.clients, " clients can be drawn");
  return refuse("cohort.size = ", cohort.size);
}

absl::StatusOr<Schema> MakeSchema(const Description& description, const Setup& setup) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("algorithm ", description.name, ": ", why));
  };
  if (description.check) {
    if (const absl::Status status = description.check(setup); !status.ok())
      return refuse(status.message());
  }
  MACAW_RETURN_IF_ERROR(CheckNeeded(description, setup));
  const TotalsUsed used = TotalsOf(description, setup);
  const auto unknown = [&](absl::string_view what, absl::string_view key) {
    return refuse(absl::StrCat("it computes with ", what, " of all clients that can be drawn, and ",
                               key, " is not set: write the number into the plan"));
  };
  if (used.clients && setup.clients == 0) return unknown("the number", "run.clients");
  if (used.weight && !(setup.total_weight > 0))
    return unknown("the weight", TotalWeightKey(setup.cohort.weight));
  MACAW_ASSIGN_OR_RETURN(Schema schema, SchemaOf(description, setup));
  const auto twice = [&](absl::string_view why) {
    return refuse(absl::StrCat("cohort.sampling = \"", setup.cohort.sampling,
                               "\" may draw a client twice in a round, and ", why,
                               "; use \"uniform\""));
  };
  if (!schema.state.empty() && setup.with_replacement())
    return twice("a client that keeps state can take only one turn");
  const auto collects = [](const aggregation::ChannelSpec& channel) {
    return channel.reduction == aggregation::Reduction::kCollect;
  };
  if (std::ranges::any_of(schema.up, collects) && setup.with_replacement())
    return twice("a rule that looks at each client's own update would count it once");
  return schema;
}

void Registry::AddBuiltin(std::vector<Description> descriptions) {
  for (Description& description : descriptions) {
    const absl::Status status = Add(std::move(description));
    if (status.ok()) continue;
    // A name that is taken, or a default out of range. It occurs at start-up.
    Logger("algorithms").Error(status.ToString());
    std::abort();
  }
}

absl::StatusOr<const Description*> Registry::Find(const std::string& name) const {
  const auto found = descriptions_.find(name);
  if (found != descriptions_.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& [known, description] : descriptions_) names.push_back(known);
  return absl::NotFoundError(
      absl::StrCat("algorithm.name: no algorithm '", name, "'", Suggestion(name, names)));
}

absl::StatusOr<Description> Registry::RuleOf(const RunPlan& run) const {
  MACAW_ASSIGN_OR_RETURN(const Description* found, Find(run.algorithm.name));
  Description rule = *found;
  if (run.privacy.on() && run.attack.on() && run.attack.omniscient()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attack.kind = \"", run.attack.kind,
                     "\" makes what it sends of the honest updates before they are noised, and so "
                     "[privacy]'s epsilon would not hold: take one of the two out"));
  }
  if (IsFactored(run.update) && run.attack.on() && run.attack.noise > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attack.noise is on updates of the model's layout, and with update.codec = [\"",
        run.update.codec.front(), "\"] clients send factors: take one of the two out"));
  }
  if (rule.has_slices) MACAW_RETURN_IF_ERROR(CheckAroundSlices(rule, run));
  const bool by_weight = run.attack.kind == "alie" ||
                         (run.attack.takes_distances() && run.attack.perturbation != "unit");
  if (IsRotated(run.update) && run.attack.on() && by_weight) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attack.kind = \"", run.attack.kind, "\" takes ",
        run.attack.takes_distances() && run.attack.perturbation == "sign"
            ? "the sign of each weight"
            : "how far clients differ in each weight",
        ", and with \"rotate\" in update.codec they send mixtures of thousands of weights: ",
        run.attack.takes_distances() ? "set attack.perturbation = \"unit\", or " : "",
        "take one of the two out"));
  }
  if (run.evaluation.updates) {
    if (run.privacy.on()) {
      return absl::InvalidArgumentError(
          "evaluation.updates tells of the clients' updates before they are noised, which "
          "[privacy]'s epsilon does not cover: take one of the two out");
    }
    if (IsMajority(run.update)) {
      return absl::InvalidArgumentError(
          "evaluation.updates tells of the mean of the clients' updates, and under update.codec = "
          "[\"majority\"] they are not summed: take one of the two out");
    }
    rule = WithDrift(rule);
  }
  if (run.asynchronous.on()) rule = Asynchronous(rule, run);
  if (IsMajority(run.update)) MACAW_RETURN_IF_ERROR(CheckAttackOnVotes(run.attack));
  if (IsFactored(run.update)) {
    rule = Factored(rule, run.update, run.privacy.on());
  } else if (IsMajority(run.update)) {
    rule = ByMajority(rule, run.update, run.privacy.on());
  } else if (run.update.on()) {
    rule = Compressed(rule, run.update, {.noised = run.privacy.on()});
  }
  if (run.privacy.on()) rule = WithPrivacy(rule, run.privacy, run.rounds, run.attack);
  if (run.attack.on()) rule = Attacked(std::move(rule), run.attack, HostileOf(run), found);
  if (run.broadcast.on()) rule = WithCodedBroadcast(rule, run.broadcast);
  const std::vector<std::string> frozen = run.model.FrozenGlobs();
  if (!frozen.empty()) rule = WithFrozen(std::move(rule), frozen);
  return rule;
}

std::vector<const Description*> Registry::All() const {
  std::vector<const Description*> all;
  for (const auto& [name, description] : descriptions_) all.push_back(&description);
  return all;
}

absl::StatusOr<AlgorithmConfig> Registry::Complete(AlgorithmConfig config) const {
  MACAW_ASSIGN_OR_RETURN(const Description* description, Find(config.name));
  std::vector<std::string> names;
  for (const ParameterSpec& spec : description->parameters) names.push_back(spec.name);
  for (const auto& [name, value] : config.parameters) {
    if (!std::ranges::count(names, name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "algorithm.", config.name, ".", name, ": no such parameter", Suggestion(name, names)));
    }
  }
  for (const ParameterSpec& spec : description->parameters) {
    const auto given = config.parameters.find(spec.name);
    absl::StatusOr<ParameterValue> value =
        Convert(spec, given == config.parameters.end() ? spec.default_value : given->second);
    if (!value.ok()) {
      return Annotate(value.status(), absl::StrCat("algorithm.", config.name, ".", spec.name));
    }
    config.parameters[spec.name] = *std::move(value);
  }
  return config;
}

}  // namespace macaw::algorithms
