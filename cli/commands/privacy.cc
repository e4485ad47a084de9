#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "algorithms/around/accountant.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"

namespace macaw::cli {
namespace {

uint64_t PopulationOf(const PrivacyCommand& command) {
  return command.population.value_or(command.clients);
}

absl::Status Check(const PrivacyCommand& command) {
  if (command.population.value_or(command.clients) < command.clients) {
    return absl::InvalidArgumentError(absl::StrCat("--population ", *command.population,
                                                   " is less than --clients ", command.clients));
  }
  if (command.cohort > PopulationOf(command)) {
    return absl::InvalidArgumentError(
        command.population.has_value()
            ? absl::StrCat("--cohort ", command.cohort, " is more than --population ",
                           *command.population)
            : absl::StrCat("--cohort ", command.cohort, " is more than --clients ", command.clients,
                           "; --population says how many there are where the run simulates fewer"));
  }
  if (command.delta.has_value() && !(*command.delta > 0 && *command.delta < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--delta ", *command.delta, " is no probability between 0 and 1"));
  }
  for (const auto& [name, value] :
       {std::pair("--epsilon", command.epsilon), std::pair("--noise", command.noise)}) {
    if (value.has_value() && !(*value >= 1e-3 && *value <= 1e6)) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " ", *value, " is not between 0.001 and 1000000"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int ShowPrivacy(const PrivacyCommand& command) {
  if (const absl::Status status = Check(command); !status.ok()) return Report(status);
  const uint64_t population = PopulationOf(command);
  const double q = static_cast<double>(command.cohort) / static_cast<double>(population);
  const double delta = command.delta.value_or(0.1 / static_cast<double>(population));
  const double noise = command.epsilon.has_value()
                           ? algorithms::NoiseFor(*command.epsilon, delta, q, command.rounds)
                           : *command.noise;
  if (std::isinf(noise)) {
    return Report(absl::InvalidArgumentError(
        absl::StrCat("no noise up to a million clips could be shown to be enough for --epsilon ",
                     *command.epsilon, ": ask for a larger one, or for fewer rounds")));
  }
  const algorithms::Accountant accountant(q, noise);
  const double epsilon = accountant.Epsilon(command.rounds, delta);
  const double most_delta = 1 / static_cast<double>(population);
  const std::string warning =
      delta < most_delta ? ""
                         : absl::StrFormat(
                               "  delta is not below 1 / clients = %.3g: a mechanism that gives a "
                               "whole client away keeps such a promise\n",
                               most_delta);
  // What the run has of it.
  const uint64_t size = std::min(command.cohort, command.clients);
  std::string larger;
  if (command.population.has_value()) absl::StrAppend(&larger, "population = ", population, "\n");
  if (command.cohort > size) absl::StrAppend(&larger, "noise_cohort = ", command.cohort, "\n");
  std::cout << absl::StrFormat(
      "%d rounds with some %d of %d clients: (%.4g, %.3g)-differential privacy of each client\n%s"
      "  rule_epsilon, by Rényi divergences, will end at %.4g; %.4g is by the distribution of the "
      "loss\n"
      "  the noise on a round's sum has deviation %.3g clips, that on the mean %.3g\n\n"
      "[privacy]\nmechanism = \"gaussian\"\nnoise = %.12g\ndelta = %.12g\n"
      "clip = 1.0  # the largest norm of an update; clip_quantile = 0.5 lets it move\n%s\n"
      "[cohort]\nsize = %d  # or fewer, with privacy.noise_cohort = %d\nsampling = \"poisson\"\nweight = \"uniform\"\n",
      command.rounds, command.cohort, population, epsilon, delta, warning,
      accountant.RenyiEpsilon(static_cast<double>(command.rounds), delta), epsilon, noise,
      noise / static_cast<double>(command.cohort), noise, delta, larger, size, command.cohort);
  return kExitOk;
}

}  // namespace macaw::cli
