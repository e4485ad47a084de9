#include "cli/config/notes.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macaw::cli {
namespace {

// Whether some client has rows of this split.
bool AnyHas(const data::Dataset& dataset, data::Split split) {
  for (uint64_t c = 0; c < dataset.info().clients; ++c) {
    if (dataset.Examples(ClientId(c), split) > 0) return true;
  }
  return false;
}

// Whether some client has both training rows and test rows of its own.
bool AnyCanBeTested(const data::Dataset& dataset) {
  for (uint64_t c = 0; c < dataset.info().clients; ++c) {
    const ClientId client(c);
    if (dataset.Examples(client, data::Split::kTest) > 0 &&
        dataset.Examples(client, data::Split::kTrain) > 0) {
      return true;
    }
  }
  return false;
}

std::string PersonalModelsNote(const Config& config, const data::Dataset& dataset) {
  const std::string& name = config.run.algorithm.name;
  if (!AnyCanBeTested(dataset)) {
    return absl::StrCat(
        name,
        " leaves each client a model of its own, but no client that trains has test rows, so "
        "these models are not evaluated",
        config.run.evaluation.clients ? " (clients_test_* will be missing or null)" : "",
        ": set data.client_test_fraction, or give them with the data (data.test_path of LEAF files, "
        "\"client_test\" of a partition file)");
  }
  if (config.run.evaluation.clients) return "";
  return absl::StrCat(name,
                      " leaves each client a model of its own, which test_* does not show: set "
                      "evaluation.clients = true for clients_test_*");
}

// A GPU trains a client on one of its processors, so that few clients use a small part of it.
std::string SmallCohortNote(const Config& config) {
  constexpr uint64_t kFewClients = 64;  // below the break-even of convolutional networks, estimated
  const uint64_t cohort = config.run.cohort.size;
  if (config.node.workers.backend.name != "cuda" || cohort >= kFewClients) return "";
  return absl::StrCat(
      "workers.backend is \"cuda\" with ", cohort, cohort == 1 ? " client" : " clients",
      " a round: a GPU trains each client on one of its hundred processors, so most of it is idle. "
      "Some hundred clients a round fill it (cohort.size); with fewer than about ",
      kFewClients, " the cores may be faster (workers.backend = \"auto\")");
}

}  // namespace

std::vector<std::string> PrivacyNotesOf(const Config& config, const models::ModelSpec& spec,
                                        const algorithms::Registry& registry) {
  const auto algorithm = registry.RuleOf(config.run);
  if (!config.run.privacy.on() || !algorithm.ok() || !algorithm->notes) return {};
  std::vector<std::string> notes = algorithm->notes(algorithms::SetupOf(config.run, spec.layout));
  std::erase_if(notes, [](const std::string& note) { return !absl::StartsWith(note, "privacy"); });
  return notes;
}

std::vector<std::string> NotesOf(const Config& config, const models::ModelSpec& spec,
                                 const data::Dataset& dataset,
                                 const algorithms::Registry& registry) {
  const RunPlan& run = config.run;
  const auto algorithm = registry.RuleOf(run);
  if (!algorithm.ok()) return {};
  std::vector<std::string> notes;
  if (algorithm->notes) notes = algorithm->notes(algorithms::SetupOf(run, spec.layout));
  if (algorithm->has_personal_models) {
    const std::string note = PersonalModelsNote(config, dataset);
    if (!note.empty()) notes.push_back(note);
  } else if (run.evaluation.clients && !AnyHas(dataset, data::Split::kTest)) {
    notes.push_back(
        "evaluation.clients tests clients on rows of their own, but no client has test rows "
        "(clients_test_* will be null): set data.client_test_fraction, or give them with the data");
  }
  const bool of_clients = run.evaluation.clients || run.evaluation.heldout ||
                          run.evaluation.validation || run.evaluation.train;
  const bool central = dataset.info().test_examples > 0 || dataset.info().val_examples > 0;
  if (run.evaluation.metrics.any() && !of_clients && !central) {
    notes.push_back(
        "evaluation.metrics has nothing to count: there is no central test set, and "
        "evaluation.clients is false");
  }
  if (const std::string note = SmallCohortNote(config); !note.empty()) notes.push_back(note);
  if (run.evaluation.validation && dataset.info().val_examples == 0 &&
      !AnyHas(dataset, data::Split::kValidation)) {
    notes.push_back(
        "evaluation.splits names validation, but no client has validation rows (clients_val_* will "
        "be null): set data.val_fraction, or data.central_val_fraction for val_*");
  }
  return notes;
}

}  // namespace macaw::cli
