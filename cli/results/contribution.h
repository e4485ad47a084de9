#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// What a client has added to the rounds of a run in which it was left out once
// (evaluation.leave_one_out), and the model without it (evaluation.unlearn).
struct ClientContribution {
  uint64_t client = 0;
  uint32_t rounds = 0;  // that counted it and left it out once
  double cosine = 0;    // mean over these rounds; NaN: it is defined in none
  // By metric ("test_accuracy"): the sum over these rounds of the metric with all clients less that
  // without the client.
  std::map<std::string, double> deltas;
  // By metric: of the newest model from which all rounds' updates of the client were taken out.
  // Empty: it was not evaluated, or there is none.
  std::map<std::string, double> unlearned;
  uint32_t unlearned_rounds = 0;  // that had counted the client; 0: there is no such model
};

// Of contributions.jsonl in the run's folder, those who helped most first: by test_accuracy, or by
// test_loss where the task has none. kNotFound: the run has no such file.
absl::StatusOr<std::vector<ClientContribution>> ReadContributions(const std::string& folder);

// A line for names, then one for each client; at most `most` clients from each end. `names`: of the
// clients, by number; empty: they have none, and no column.
std::vector<std::vector<std::string>> ContributionLines(
    const std::vector<ClientContribution>& clients, size_t most,
    const std::vector<std::string>& names = {});

// The same of all clients as CSV, with every digit. A cell is empty where a number is not defined.
std::string ContributionCsv(const std::vector<ClientContribution>& clients,
                            const std::vector<std::string>& names = {});

// The same of all clients as a list of JSON objects: null where a number is not defined.
std::string ContributionJson(const std::vector<ClientContribution>& clients,
                             const std::vector<std::string>& names = {});

}  // namespace macaw::cli
