#include "cli/config/notes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "training/api/schedule.h"

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

}  // namespace

std::vector<std::string> ScheduleNotes(const RunPlan& run) {
  std::vector<std::string> notes;
  const auto add = [&](absl::string_view key, const Schedule& schedule, absl::string_view what) {
    const std::optional<uint32_t> idle = training::FirstIdleRound(schedule, run.rounds);
    if (!idle.has_value()) return;
    notes.push_back(absl::StrCat(
        key, ": the rate is 0 from round ", *idle, " on, so ", what, " in the last ",
        run.rounds - *idle + 1, " of ", run.rounds, " rounds",
        schedule.kind == "cosine" ? "; a cosine over more rounds, or with a floor, does not end"
                                    " there"
                                  : ""));
  };
  add("local.lr_schedule", training::LocalSchedule(run), "clients train nothing");
  const auto text = run.algorithm.parameters.find("server_lr_schedule");
  if (text == run.algorithm.parameters.end()) return notes;
  const auto* const line = std::get_if<std::string>(&text->second);
  const absl::StatusOr<Schedule> schedule =
      line == nullptr ? Schedule() : training::ParseSchedule(*line);
  if (schedule.ok()) {
    add(absl::StrCat("algorithm.", run.algorithm.name, ".server_lr_schedule"), *schedule,
        "the model stays as it is");
  }
  return notes;
}

std::vector<std::string> NotesOf(const Config& config, const models::ModelSpec& spec,
                                 const data::Dataset& dataset,
                                 const algorithms::Registry& registry) {
  const RunPlan& run = config.run;
  const auto algorithm = registry.RuleOf(run);
  if (!algorithm.ok()) return {};
  std::vector<std::string> notes = ScheduleNotes(run);
  if (algorithm->notes)
    std::ranges::move(algorithm->notes(algorithms::SetupOf(run, spec.layout)),
                      std::back_inserter(notes));
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
  if (run.evaluation.metrics.any() && !of_clients && dataset.info().test_examples == 0) {
    notes.push_back(
        "evaluation.metrics has nothing to count: there is no central test set, and "
        "evaluation.clients is false");
  }
  if (run.evaluation.validation && !AnyHas(dataset, data::Split::kValidation)) {
    notes.push_back(
        "evaluation.splits names validation, but no client has validation rows (clients_val_* will "
        "be null): set data.val_fraction");
  }
  return notes;
}

}  // namespace macaw::cli
