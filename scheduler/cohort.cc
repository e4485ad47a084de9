#include "scheduler/cohort.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "core/status.h"
#include "scheduler/availability.h"
#include "scheduler/by_loss.h"
#include "scheduler/oort.h"
#include "scheduler/over_selection.h"
#include "scheduler/sweep.h"
#include "scheduler/trainable.h"

namespace macaw::scheduler {
namespace {

// `size` distinct clients, every subset equally likely; O(size) for any population.
class UniformSampler final : public CohortSampler {
 public:
  UniformSampler(uint64_t seed, uint64_t size, Trainable clients)
      : seed_(seed), size_(size), clients_(std::move(clients)) {}

  Cohort Sample(const Moment& moment) const override {
    const Round round = moment.round;
    RandomStream stream({.seed = seed_, .purpose = Purpose::kCohort, .round = round});
    const uint64_t free = clients_.size() - moment.busy.size();
    const uint64_t wanted = std::min({size_, moment.most, free});
    std::vector<uint64_t> drawn = SampleWithoutReplacement(stream, free, wanted);
    return {round, clients_.Entries(clients_.WithoutBusy(std::move(drawn), moment.busy))};
  }

 private:
  const uint64_t seed_;
  const uint64_t size_;
  const Trainable clients_;
};

// `size` independent draws, client k with probability n_k / Σn (Li et al. 2020, FedProx, §3;
// FedAvg's second scheme). O(size · log N) per round, with one table of running sums.
class ProportionalSampler final : public CohortSampler {
 public:
  ProportionalSampler(uint64_t seed, uint64_t size, std::span<const uint32_t> examples)
      : seed_(seed), size_(size), examples_(examples) {
    ends_.reserve(examples.size());
    uint64_t end = 0;
    for (const uint32_t rows : examples) ends_.push_back(end += rows);
  }

  Cohort Sample(const Moment& moment) const override {
    const Round round = moment.round;
    RandomStream stream({.seed = seed_, .purpose = Purpose::kCohort, .round = round});
    std::vector<uint64_t> ids(size_);
    for (uint64_t& id : ids) {
      // Draw a row of the whole population and take its owner.
      const uint64_t row = stream.Below(ends_.back());
      id = static_cast<uint64_t>(std::ranges::upper_bound(ends_, row) - ends_.begin());
    }
    std::sort(ids.begin(), ids.end());
    Cohort cohort{.round = round};
    for (const uint64_t id : ids) {
      if (!cohort.entries.empty() && cohort.entries.back().client.value == id) {
        ++cohort.entries.back().multiplicity;
      } else {
        cohort.entries.push_back({.client = ClientId(id), .load = examples_[id]});
      }
    }
    return cohort;
  }

 private:
  const uint64_t seed_;
  const uint64_t size_;
  const std::span<const uint32_t> examples_;
  // The end of each client's rows when all clients' rows are put in one line.
  std::vector<uint64_t> ends_;
};

// Each client independently with probability q = size / N, as differential privacy's accounting
// assumes. The gaps between chosen clients are geometric, so a round costs O(q·N).
class PoissonSampler final : public CohortSampler {
 public:
  PoissonSampler(uint64_t seed, uint64_t size, Trainable clients)
      : seed_(seed),
        clients_(std::move(clients)),
        log_miss_(std::log1p(-static_cast<double>(size) / static_cast<double>(clients_.size()))) {}

  Cohort Sample(const Moment& moment) const override {
    const Round round = moment.round;
    RandomStream stream({.seed = seed_, .purpose = Purpose::kCohort, .round = round});
    std::vector<uint64_t> chosen;
    const auto population = static_cast<double>(clients_.size());
    for (double next = Gap(stream); next < population; next += 1 + Gap(stream))
      chosen.push_back(static_cast<uint64_t>(next));
    return {round, clients_.Entries(std::move(chosen))};
  }

 private:
  // The number of clients skipped before the next one: P(gap ≥ g) = (1 − q)^g.
  double Gap(RandomStream& stream) const {
    return std::floor(std::log1p(-stream.Uniform()) / log_miss_);
  }

  const uint64_t seed_;
  const Trainable clients_;
  const double log_miss_;  // log(1 − q); −∞ if everybody is drawn
};

absl::Status CheckSize(const char* what, uint64_t size, const Trainable& clients,
                       uint64_t population) {
  if (size > 0 && size <= clients.size()) return absl::OkStatus();
  const std::string have = clients.size() == population
                               ? absl::StrCat("the population has ", population, " clients")
                               : absl::StrCat(clients.size(), " of the population's ", population,
                                              " clients have training rows");
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", size, ", but ", have, ": choose 1 to ", clients.size()));
}

absl::StatusOr<std::unique_ptr<CohortSampler>> MakeLearning(const CohortConfig& config,
                                                            uint64_t size, Trainable clients,
                                                            std::span<const uint32_t> examples,
                                                            const Feedback& feedback) {
  if (config.sampling == "oort") return MakeOortSampler(config, size, std::move(clients), feedback);
  if (config.sampling == "ucb") return MakeUpperBound(config, size, std::move(clients), feedback);
  return MakePowerOfChoice(config, size, examples, feedback);
}

// The sampler of `config.sampling`: `size` clients, on average or at most.
absl::StatusOr<std::unique_ptr<CohortSampler>> MakeDraw(const CohortConfig& config, uint64_t size,
                                                        std::span<const uint32_t> examples,
                                                        const virtual_time::Presence* presence,
                                                        const Feedback* feedback) {
  Trainable clients(examples);
  if (clients.size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("none of the ", examples.size(), " clients has a training row"));
  }
  if (config.sampling == "proportional") {
    if (size == 0) return absl::InvalidArgumentError("cohort.size is 0: choose at least 1");
    if (config.weight != WeightPolicy::kUniform) {
      return absl::InvalidArgumentError(
          "cohort.sampling = \"proportional\" draws clients by their examples already: set "
          "cohort.weight = \"uniform\", or large clients count twice");
    }
    return std::make_unique<ProportionalSampler>(config.seed, size, examples);
  }
  const auto asked =
      size == config.size ? "cohort.size" : "cohort.size times cohort.over_selection";
  MACAW_RETURN_IF_ERROR(CheckSize(asked, size, clients, examples.size()));
  if (config.sampling == "uniform")
    return std::make_unique<UniformSampler>(config.seed, size, std::move(clients));
  if (config.sampling == "poisson")
    return std::make_unique<PoissonSampler>(config.seed, size, std::move(clients));
  if (config.sampling == "sweep") return MakeSweepSampler(config.seed, size, std::move(clients));
  if (config.sampling == "cyclic")
    return MakeSweepSampler(config.seed, size, std::move(clients), SweepOrder::kSame);
  if (config.sampling == "available" && presence != nullptr)
    return MakePresentSampler(config.seed, size, std::move(clients), *presence);
  if (config.sampling == "available") {
    return MakeAvailableSampler({.probability = config.availability,
                                 .swing = config.availability_swing,
                                 .day = config.availability_day,
                                 .seed = config.seed},
                                size, std::move(clients));
  }
  if (LearnsFromRounds(config)) {
    if (feedback == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("cohort.sampling = \"", config.sampling,
                       "\" follows what rounds tell of their clients, and here are no rounds"));
    }
    return MakeLearning(config, size, std::move(clients), examples, *feedback);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cohort.sampling is \"", config.sampling,
                   "\"; known: uniform, proportional, poisson, sweep, cyclic, available, oort, "
                   "power-of-choice, ucb"));
}

}  // namespace

uint64_t AskedClients(const CohortConfig& config) {
  // 1.1 times 100 should be 110 clients, although the double 1.1 is a little larger than 1.1.
  const double asked = std::ceil(static_cast<double>(config.size) * config.over_selection - 1e-9);
  return static_cast<uint64_t>(std::min(asked, 9e18));
}

RoundSize SizeOfRounds(const CohortConfig& config, uint64_t clients) {
  const bool sweeps = config.sampling == "sweep" || config.sampling == "cyclic";
  if (!sweeps || config.size == 0 || clients == 0) return {config.size, config.size};
  const SweepRounds rounds(clients, config.size);
  return {rounds.share, rounds.share + (rounds.longer > 0 ? 1 : 0)};
}

absl::StatusOr<std::unique_ptr<CohortSampler>> MakeCandidates(
    const CohortConfig& config, std::span<const uint32_t> examples,
    const virtual_time::Presence* presence, const Feedback* feedback) {
  if (!(config.over_selection >= 1) || !std::isfinite(config.over_selection)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cohort.over_selection is ", config.over_selection, "; choose 1 or more"));
  }
  if (config.over_selection > 1 && config.sampling != "uniform" && config.sampling != "available" &&
      !LearnsFromRounds(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cohort.over_selection drops clients by their speed, which breaks what "
                     "cohort.sampling = \"",
                     config.sampling, "\" is for: use \"uniform\" or \"available\""));
  }
  return MakeDraw(config, AskedClients(config), examples, presence, feedback);
}

absl::StatusOr<std::unique_ptr<CohortSampler>> MakeSampler(const CohortConfig& config,
                                                           std::span<const uint32_t> examples,
                                                           const Feedback* feedback) {
  MACAW_ASSIGN_OR_RETURN(std::unique_ptr<CohortSampler> candidates,
                         MakeCandidates(config, examples, nullptr, feedback));
  if (config.over_selection == 1) return candidates;
  if (LearnsFromRounds(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cohort.over_selection with cohort.sampling = \"", config.sampling,
                     "\" needs [devices], which say whose report comes first"));
  }
  return MakeOverSelection({.keep = config.size,
                            .device_spread = config.device_spread,
                            .round_spread = config.round_spread,
                            .seed = config.seed},
                           std::move(candidates));
}

}  // namespace macaw::scheduler
