#include "algorithms/around/privacy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "algorithms/api/vector_math.h"
#include "algorithms/around/accountant.h"
#include "algorithms/around/counted_state.h"
#include "algorithms/around/guard.h"
#include "core/status.h"
#include "training/api/straggler.h"

namespace macaw::algorithms {
namespace {

using aggregation::ChannelSpec;
using aggregation::Reduction;

LayoutPtr NumberLayout() {
  static const LayoutPtr& layout =
      *new LayoutPtr(ParameterLayout::Scalars("value", 1, DType::kF64));
  return layout;
}

double NoiseCohort(const PrivacyConfig& config, const Setup& setup) {
  return static_cast<double>(config.noise_cohort.value_or(setup.cohort.size)) *
         training::ShareThatTrains(setup.cohort);
}

// How many clips long a hostile client's update can be. A free-rider's normals end at 6.66.
double ReachOf(const AttackConfig& attack, const PrivacyConfig& config) {
  if (!attack.on()) return 1;
  if (attack.kind == "free-rider") return std::max(1.0, 7 * attack.noise / config.clip);
  return std::max(1.0, attack.scales() ? attack.Scale() : 1.0);
}

// The clients among which the noise's cohort is drawn.
uint64_t Population(const PrivacyConfig& config, const Setup& setup) {
  return config.population.value_or(setup.clients);
}

// σ_b, of the noise's cohort.
double CountNoise(const PrivacyConfig& config, const Setup& setup) {
  return config.count_noise.value_or(NoiseCohort(config, setup) / 20);
}

// What the rule sees: it is given the sums of planned cohorts, whoever came.
Setup InnerSetup(Setup setup) {
  setup.cohort.sampling = "uniform";
  return setup;
}

// Whether no client sends a change of a buffer: the server freezes them, or all of them stay with
// the clients.
bool SendsNoBuffers(const Description& rule, const Setup& setup) {
  if (setup.layout->parameter_size() == setup.layout->size()) return true;
  if (setup.model.buffers == "server") return true;
  if (!rule.stays_with_clients) return false;
  const LayoutPtr local = rule.stays_with_clients(setup).layout();
  return std::ranges::all_of(setup.layout->entries(), [&](const LayoutEntry& entry) {
    return entry.group != Group::kBuffer || local->Find(entry.name) != nullptr;
  });
}

absl::Status CheckRule(const Description& rule, const Setup& setup, const Schema& schema) {
  if (rule.has_several_models) {
    return absl::InvalidArgumentError(
        "is for rules with one model: which of several each client takes would tell of its rows, "
        "and no noise covers it");
  }
  if (rule.pools_clients || !rule.has_common_model) {
    return absl::InvalidArgumentError(
        "is for rules whose server adds up what clients send, and this one's does not");
  }
  if (!SendsNoBuffers(rule, setup)) {
    return absl::InvalidArgumentError(
        "clients would send buffers of the model (batch-norm statistics), which clipping does not "
        "bound: take group norm, freeze them with model.buffers = \"server\", or leave them with "
        "the clients with algorithm.name = \"fedbn\"");
  }
  const auto in_some = [](const auto& channel) { return !channel.phases.empty(); };
  if (std::ranges::any_of(schema.up, in_some) || std::ranges::any_of(schema.down, in_some)) {
    return absl::InvalidArgumentError(
        "the rule has several phases a round, and epsilon is of one sum a round");
  }
  MACAW_RETURN_IF_ERROR(CheckCountedState(rule, schema, "Clipping takes a part of that away"));
  for (const MetricSpec& metric : schema.metrics) {
    if (metric.name == "epsilon" || metric.name == "clip" || metric.name == "clipped") {
      return absl::InvalidArgumentError(
          absl::StrCat("the rule reports a metric '", metric.name, "' of its own"));
    }
  }
  for (const ChannelSpec& channel : schema.up) {
    if (channel.reduction == Reduction::kCollect || channel.reduction == Reduction::kMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("the rule's channel '", channel.name, "' is no sum of what clients send"));
    }
    if (!SameLayout(channel.layout.get(), setup.layout.get())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the rule's channel '", channel.name,
                       "' is no update of the model, and one clip cannot be for both"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSettings(const PrivacyConfig& config, const Setup& setup) {
  if (setup.clients == 0) {
    return absl::InvalidArgumentError(
        "the number of clients must be known (run.clients), for the probability of each to be "
        "drawn");
  }
  if (setup.cohort.sampling != "poisson") {
    return absl::InvalidArgumentError(absl::StrCat(
        "epsilon is of clients that are drawn independently, and cohort.sampling is \"",
        setup.cohort.sampling, "\": set cohort.sampling = \"poisson\""));
  }
  if (!setup.cohort.eligible.empty() || setup.cohort.min_rows.has_value()) {
    return absl::InvalidArgumentError(
        "epsilon is of all clients being drawn alike, and cohort.eligible and cohort.min_rows leave "
        "some out: the others are drawn more often");
  }
  if (setup.cohort.weight != WeightPolicy::kUniform) {
    return absl::InvalidArgumentError(
        "a client may count only as much as any other: set cohort.weight = \"uniform\"");
  }
  const uint64_t population = Population(config, setup);
  if (population < setup.clients) {
    return absl::InvalidArgumentError(absl::StrCat("privacy.population = ", population,
                                                   " is less than the ", setup.clients,
                                                   " clients of the run, which belong to it"));
  }
  const uint64_t noise_cohort = config.noise_cohort.value_or(setup.cohort.size);
  if (noise_cohort < setup.cohort.size || noise_cohort > population) {
    return absl::InvalidArgumentError(absl::StrCat(
        "privacy.noise_cohort = ", noise_cohort, " is to be from cohort.size = ", setup.cohort.size,
        " to the number of clients that it is drawn from, ", population,
        config.population.has_value()
            ? " (privacy.population)"
            : ": set privacy.population to the clients of the system that the run simulates"));
  }
  const double count_noise = CountNoise(config, setup);
  if (training::ShareThatTrains(setup.cohort) <= 0) {
    return absl::InvalidArgumentError(
        "cohort.straggler_policy = \"drop\" with straggler_fraction = 1 leaves no client to train");
  }
  if (config.adaptive() && 2 * count_noise <= config.noise) {
    return absl::InvalidArgumentError(absl::StrCat(
        "adaptive clipping needs privacy.count_noise (", count_noise,
        ") above privacy.noise / 2 = ", config.noise / 2, ": the number of shorter updates would ",
        "cost more than privacy.noise allows for all; larger cohorts make room for it"));
  }
  return absl::OkStatus();
}

// Many runs of a sweep ask for the same.
double EpsilonAtTheEnd(const Privacy& privacy) {
  static absl::Mutex mutex;
  static auto* const known = new std::map<std::array<double, 4>, double>;
  const std::array<double, 4> key = {privacy.q, privacy.config.noise,
                                     static_cast<double>(privacy.rounds), privacy.config.delta};
  const absl::MutexLock lock(&mutex);
  const auto found = known->find(key);
  if (found != known->end()) return found->second;
  const double epsilon =
      Accountant(privacy.q, privacy.config.noise).Epsilon(privacy.rounds, privacy.config.delta);
  return known->emplace(key, epsilon).first->second;
}

// `cohort`: the mean number of clients in a round.
std::string CohortText(double cohort) {
  return cohort < 1 ? "fewer than one on average" : absl::StrCat("some ", std::lround(cohort));
}

std::vector<std::string> NotesOf(const Privacy& privacy, const Setup& setup) {
  constexpr double kSaysNothing = 50;
  const PrivacyConfig& config = privacy.config;
  const double epsilon = EpsilonAtTheEnd(privacy);
  const uint64_t population = Population(config, setup);
  std::vector<std::string> notes;
  notes.push_back(absl::StrFormat(
      "privacy: after run.rounds = %u the models are (%.3g, %g)-differentially private for each of "
      "%d clients; updates are clipped to %g%s, and the noise on the sum of %s has deviation %.3g",
      privacy.rounds, epsilon, config.delta, population, config.clip,
      config.adaptive() ? " at first" : "", CohortText(privacy.cohort),
      privacy.noise * config.clip));
  if (epsilon > kSaysNothing)
    notes.push_back(
        "privacy: such an epsilon promises nothing; `macaw privacy` says which noise does");
  if (config.delta * static_cast<double>(population) >= 1) {
    notes.push_back(absl::StrFormat(
        "privacy.delta = %g is not below 1 / clients = %.3g: such a run may give a whole client away",
        config.delta, 1 / static_cast<double>(population)));
  }
  if (config.noise_cohort.has_value() && *config.noise_cohort > setup.cohort.size) {
    notes.push_back(absl::StrFormat(
        "privacy.noise_cohort = %d: epsilon is that of rounds of this size, of which %d clients are "
        "simulated",
        *config.noise_cohort, setup.cohort.size));
  }
  if (population > setup.clients) {
    notes.push_back(absl::StrFormat(
        "privacy.population = %d: epsilon is that of rounds drawn from so many clients, of which %d "
        "are simulated",
        population, setup.clients));
  }
  if (privacy.reach > 1) {
    notes.push_back(absl::StrFormat(
        "privacy: hostile clients do not clip; an update of theirs may be %.3g clips long, and the "
        "server adds it up as it is. epsilon is of the honest clients",
        privacy.reach));
  }
  return notes;
}

}  // namespace

Privacy Privacy::Of(const PrivacyConfig& config, const Setup& setup, uint32_t rounds,
                    const AttackConfig& attack) {
  Privacy privacy{.config = config, .rounds = rounds, .reach = ReachOf(attack, config)};
  privacy.cohort = static_cast<double>(setup.cohort.size) * training::ShareThatTrains(setup.cohort);
  const double noise_cohort = NoiseCohort(config, setup);
  const uint64_t population = std::max<uint64_t>(1, Population(config, setup));
  privacy.q = std::min(1.0, noise_cohort / static_cast<double>(population));
  const double scale = privacy.cohort / noise_cohort;
  double z = config.noise;
  if (config.adaptive()) {
    const double count_noise = CountNoise(config, setup);
    privacy.count_noise = count_noise * scale;
    z = 1 / std::sqrt(1 / (z * z) - 1 / (4 * count_noise * count_noise));
  }
  privacy.noise = z * scale;
  return privacy;
}

Schema WithPrivacy(Schema schema, const Privacy& privacy) {
  // So that the grid of the sums is fine beside the clip.
  const double most =
      privacy.config.clip * (privacy.config.adaptive() ? kClipRange : 1) * privacy.reach;
  for (ChannelSpec& channel : schema.up) channel.bound = std::min(channel.bound, most);
  if (privacy.config.adaptive()) {
    schema.down.push_back({.name = kClipChannel, .layout = NumberLayout()});
    schema.up.push_back({.name = kShorterChannel,
                         .layout = NumberLayout(),
                         .reduction = Reduction::kFixedSum,
                         .bound = 1,
                         .divisor = privacy.cohort});
  }
  schema.metrics.push_back({.name = "epsilon", .reduction = std::nullopt});
  schema.metrics.push_back({.name = "clip", .reduction = std::nullopt});
  if (privacy.config.adaptive()) {
    schema.metrics.push_back({.name = "clipped", .reduction = std::nullopt});
  } else {
    schema.metrics.push_back({.name = "clipped", .reduction = Reduction::kMean, .bound = 1});
  }
  return schema;
}

Description WithPrivacy(const Description& rule, const PrivacyConfig& config, uint32_t rounds,
                        const AttackConfig& attack) {
  Description result = rule;
  result.check = [rule, config](const Setup& setup) -> absl::Status {
    if (rule.check) MACAW_RETURN_IF_ERROR(rule.check(InnerSetup(setup)));
    MACAW_ASSIGN_OR_RETURN(const Schema schema, rule.schema(InnerSetup(setup)));
    absl::Status status = CheckRule(rule, setup, schema);
    if (status.ok()) status = CheckSettings(config, setup);
    if (status.ok()) return status;
    return absl::InvalidArgumentError(
        absl::StrCat("privacy.mechanism = \"", config.mechanism, "\": ", status.message()));
  };
  result.notes = [rule, config, rounds, attack, check = result.check](const Setup& setup) {
    std::vector<std::string> notes;
    if (rule.notes) notes = rule.notes(InnerSetup(setup));
    if (!check(setup).ok()) return notes;  // the run will be refused
    std::ranges::move(NotesOf(Privacy::Of(config, setup, rounds, attack), setup),
                      std::back_inserter(notes));
    return notes;
  };
  result.schema = [rule, config, rounds, attack](const Setup& setup) -> absl::StatusOr<Schema> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(InnerSetup(setup)));
    return WithPrivacy(std::move(schema), Privacy::Of(config, setup, rounds, attack));
  };
  result.client = [rule, config, rounds,
                   attack](const Setup& setup) -> absl::StatusOr<std::unique_ptr<ClientAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(InnerSetup(setup)));
    schema.whose = WhoseOf(rule);
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ClientAlgorithm> inner, rule.client(InnerSetup(setup)));
    return MakePrivateClient(std::move(inner), std::move(schema),
                             Privacy::Of(config, setup, rounds, attack));
  };
  result.server = [rule, config, rounds, attack](
                      const Setup& setup,
                      FlatVector model) -> absl::StatusOr<std::unique_ptr<ServerAlgorithm>> {
    MACAW_ASSIGN_OR_RETURN(Schema schema, rule.schema(InnerSetup(setup)));
    MACAW_ASSIGN_OR_RETURN(std::unique_ptr<ServerAlgorithm> inner,
                           rule.server(InnerSetup(setup), std::move(model)));
    return MakePrivateServer(std::move(inner), std::move(schema),
                             Privacy::Of(config, setup, rounds, attack));
  };
  return result;
}

}  // namespace macaw::algorithms
