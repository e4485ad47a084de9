#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "algorithms/around/accountant.h"
#include "cli/commands/checks.h"
#include "cli/commands/commands.h"
#include "cli/process/exit.h"

namespace macaw::cli {
namespace {

// Prints the noise that is enough for an epsilon, or the epsilon of a noise, under [privacy].
struct PrivacyCommand {
  uint64_t clients = 0, cohort = 0, rounds = 0;
  std::optional<uint64_t> population;    // privacy.population; unset: clients
  std::optional<double> delta;           // unset: a tenth of 1 / population
  std::optional<double> epsilon, noise;  // one of them
  double dropped = 0;                    // cohort.straggler_fraction, with straggler_policy "drop"
};

uint64_t PopulationOf(const PrivacyCommand& command) {
  return command.population.value_or(command.clients);
}

// Of a round, on average: those drawn that are not dropped.
double Training(const PrivacyCommand& command) {
  return static_cast<double>(command.cohort) * (1 - command.dropped);
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
  if (!(command.dropped >= 0 && command.dropped < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--straggler-fraction ", command.dropped, " is not in [0, 1)"));
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

int ShowPrivacy(const PrivacyCommand& command) {
  if (const absl::Status status = Check(command); !status.ok()) return Report(status);
  const uint64_t population = PopulationOf(command);
  const double q = Training(command) / static_cast<double>(population);
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
  const std::string stragglers =
      command.dropped == 0
          ? ""
          : absl::StrFormat("straggler_fraction = %.12g\nstraggler_policy = \"drop\"\n",
                            command.dropped);
  std::cout << absl::StrFormat(
      "%d rounds with some %.12g of %d clients: (%.4g, %.3g)-differential privacy of each client\n%s"
      "  rule_epsilon, by Rényi divergences, will end at %.4g; %.4g is by the distribution of the "
      "loss\n"
      "  the noise on a round's sum has deviation %.3g clips, that on the mean %.3g\n\n"
      "[privacy]\nmechanism = \"gaussian\"\nnoise = %.12g\ndelta = %.12g\n"
      "clip = 1.0  # the largest norm of an update; clip_quantile = 0.5 lets it move\n%s\n"
      "[cohort]\nsize = %d  # or fewer, with privacy.noise_cohort = %d\nsampling = \"poisson\"\nweight = \"uniform\"\n%s",
      command.rounds, Training(command), population, epsilon, delta, warning,
      accountant.RenyiEpsilon(static_cast<double>(command.rounds), delta), epsilon, noise,
      noise / Training(command), noise, delta, larger, size, command.cohort, stragglers);
  return kExitOk;
}

}  // namespace

void AddPrivacy(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "privacy", "The noise that is enough for an epsilon, or the epsilon of a noise");
  auto options = std::make_shared<PrivacyCommand>();
  const auto count = [&](const std::string& name, uint64_t& value, const std::string& help) {
    command->add_option(name, value, help)->required()->check([](const std::string& text) {
      uint64_t number = 0;
      const bool good = absl::SimpleAtoi(text, &number) && number > 0;
      return good ? std::string() : "must be a whole number of at least 1, found " + text;
    });
  };
  count("--clients", options->clients, "Clients of the run, in all");
  count("--cohort", options->cohort, "Clients of a round: cohort.size, or privacy.noise_cohort");
  count("--rounds", options->rounds, "run.rounds");
  command
      ->add_option("--population", options->population,
                   "privacy.population: the clients among which --cohort is drawn, where the run "
                   "simulates fewer (default: --clients)")
      ->check(AboveZero());
  command->add_option("--delta", options->delta,
                      "privacy.delta (default: a tenth of 1 / population)");
  command->add_option("--straggler-fraction", options->dropped,
                      "cohort.straggler_fraction, where cohort.straggler_policy is \"drop\": the "
                      "share of the drawn clients that does not train (default: 0)");
  CLI::Option* epsilon =
      command->add_option("--epsilon", options->epsilon, "Print the noise for this epsilon");
  CLI::Option* noise =
      command->add_option("--noise", options->noise, "Print the epsilon of this privacy.noise")
          ->excludes(epsilon);
  command->final_callback([=, &run] {
    if (epsilon->count() + noise->count() == 0) throw CLI::RequiredError("--epsilon or --noise");
    run = [options] { return ShowPrivacy(*options); };
  });
}

}  // namespace macaw::cli
