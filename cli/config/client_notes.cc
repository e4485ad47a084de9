#include "cli/config/client_notes.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config/drawable.h"
#include "core/spelling.h"
#include "plan/local_steps.h"
#include "training/api/round_local.h"

namespace macaw::cli {
namespace {

template <typename Has>  // bool(ClientId)
uint64_t CountClients(const data::Dataset& dataset, const Has& has) {
  uint64_t count = 0;
  for (ClientId client; client.value < dataset.info().clients; ++client.value)
    count += has(client) ? 1 : 0;
  return count;
}

// Whether some client has rows of this split.
bool AnyHas(const data::Dataset& dataset, data::Split split) {
  return CountClients(dataset,
                      [&](ClientId client) { return dataset.Examples(client, split) > 0; }) > 0;
}

// Whether some client has both training rows and test rows of its own.
bool AnyCanBeTested(const data::Dataset& dataset) {
  return CountClients(dataset, [&](ClientId client) {
           return dataset.Examples(client, data::Split::kTest) > 0 &&
                  dataset.Examples(client, data::Split::kTrain) > 0;
         }) > 0;
}

std::string PersonalModelsNote(const Config& config, const algorithms::Description& rule,
                               const data::Dataset& dataset) {
  const std::string name =
      absl::StrCat(config.run.algorithm.name, rule.has_several_models
                                                  ? " tests each client at the model that it takes"
                                                  : " leaves each client a model of its own");
  if (!AnyCanBeTested(dataset)) {
    return absl::StrCat(
        name,
        ", but no client that trains has test rows, so "
        "these models are not evaluated",
        config.run.evaluation.clients ? " (clients_test_* will be missing or null)" : "",
        ": set data.client_test_fraction, or give them with the data (data.test_path of LEAF "
        "files, \"client_test\" of a partition file)");
  }
  if (config.run.evaluation.clients) return "";
  return absl::StrCat(name,
                      ", which test_* does not show: set evaluation.clients = true for "
                      "clients_test_*");
}

// Of clients that train without a step, or without fewer steps as stragglers.
void AddNotesOnSteps(const RunPlan& run, bool joins, const data::Dataset& dataset,
                     std::vector<std::string>& notes) {
  const LocalConfig local = training::MostLocal(run);
  const uint32_t least = LeastRows(local);
  const bool shortens =
      run.cohort.straggler_fraction > 0 && run.cohort.straggler_policy == "partial";
  if (least <= 1 && !(shortens && (local.epochs == 1 || local.steps > 0))) return;
  uint64_t clients = 0, without = 0, with_one = 0;
  for (ClientId client; client.value < dataset.info().clients; ++client.value) {
    const uint32_t rows = dataset.Examples(client, data::Split::kTrain);
    if (rows == 0) continue;
    ++clients;
    without += rows < least ? 1 : 0;
    with_one += rows >= least && StepsOf(local, rows, joins) == 1 ? 1 : 0;
  }
  if (without > 0) {
    notes.push_back(absl::StrCat("local.drop_last: ", without, " of ", clients,
                                 " clients have fewer training rows than a batch of ",
                                 local.batch_size, " and take no step, so no round draws them"));
  }
  if (shortens && with_one > 0) {
    notes.push_back(absl::StrCat("cohort.straggler_fraction: ", with_one, " of ", clients,
                                 " clients take one step a round, and take it as stragglers, too"));
  }
}

// Counts the clients whose turns change nothing: a step of the rule takes more batches than they
// have in a round.
std::string BatchesNote(const RunPlan& run, bool joins, const algorithms::Description& rule,
                        const data::Dataset& dataset) {
  if (rule.batches_a_step <= 1) return "";
  const LocalConfig local = training::MostLocal(run);
  const auto trains = [&](ClientId client) {
    return dataset.Examples(client, data::Split::kTrain) >= LeastRows(local);
  };
  const uint64_t clients = CountClients(dataset, trains);
  const uint64_t without = CountClients(dataset, [&](ClientId client) {
    return trains(client) && StepsOf(local, dataset.Examples(client, data::Split::kTrain), joins) <
                                 rule.batches_a_step;
  });
  if (without == 0) return "";
  return absl::StrCat("a step of ", rule.name, " takes ", rule.batches_a_step, " batches, and ",
                      without, " of ", clients,
                      " clients have fewer in a round, so their turns change nothing: set "
                      "local.epochs = ",
                      rule.batches_a_step, ", or a smaller local.batch_size");
}

// Says that the central validation rows are not used: the rule has no common model to evaluate.
std::string CentralValidationNote(const algorithms::Description& rule,
                                  const data::DatasetInfo& data) {
  if (rule.has_common_model || data.val_examples == 0) return "";
  return absl::StrCat("the central validation set (", Counted(data.val_examples, "row"),
                      ") is not used: ", rule.name,
                      " has no common model for val_*. Set data.central_val_fraction = 0, so that "
                      "clients train on these rows, or data.val_fraction for rows of clients' own");
}

// Says that the common model's validation rows choose, where clients have personal models and none
// of the columns over validation rows is of those.
std::string CommonValidationNote(const RunPlan& run, const algorithms::Description& rule,
                                 const data::Dataset& dataset) {
  const uint64_t rows = dataset.info().val_examples;
  const bool chosen_by_clients = run.evaluation.validation && run.evaluation.clients &&
                                 AnyHas(dataset, data::Split::kValidation) &&
                                 AnyHas(dataset, data::Split::kTest);
  if (!rule.has_both_models() || rows == 0 || chosen_by_clients) return "";
  return absl::StrCat("val_* (", Counted(rows, "row"), ", data.central_val_fraction) are of ",
                      rule.name,
                      "'s common model, and not of the personal ones; without a metric of your own "
                      "they choose the best round, in run.stop and in sweeps. To choose by the "
                      "personal models set data.val_fraction, data.client_test_fraction, "
                      "evaluation.clients = true and evaluation.splits with \"validation\" "
                      "(clients_val_*)");
}

// Of clients that have training rows and none of this split, and so are in none of its columns.
std::string SplitNote(const data::Dataset& dataset, data::Split split, absl::string_view rows,
                      absl::string_view columns, absl::string_view key) {
  uint64_t clients = 0, without = 0;
  for (ClientId client; client.value < dataset.info().clients; ++client.value) {
    if (dataset.Examples(client, data::Split::kTrain) == 0) continue;
    ++clients;
    without += dataset.Examples(client, split) == 0 ? 1 : 0;
  }
  if (without == 0 || without == clients) return "";  // none at all: another note
  return absl::StrCat(without, " of ", clients, " clients that train have no ", rows, " rows, so ",
                      columns, "* say nothing of them (", columns,
                      "clients: how many they are of): raise ", key);
}

// Notes that the metrics after tuning are of other clients than those before, where some have test
// rows and no training rows. With evaluation.heldout these have columns of their own.
std::string TunedClientsNote(const RunPlan& run, const data::Dataset& dataset) {
  if (!run.evaluation.clients || run.evaluation.heldout) return "";
  if (run.evaluation.fine_tune.steps == 0) return "";
  const auto is_tested = [&](ClientId client) {
    return dataset.Examples(client, data::Split::kTest) > 0;
  };
  const uint64_t tested = CountClients(dataset, is_tested);
  const uint64_t without = CountClients(dataset, [&](ClientId client) {
    return is_tested(client) && dataset.Examples(client, data::Split::kTrain) == 0;
  });
  if (without == 0) return "";
  return absl::StrCat(without, " of ", tested,
                      " clients with test rows have no training rows to tune on: "
                      "clients_test_* are of them, too, and clients_test_tuned_* are not");
}

// Notes how many clients that join later have test rows and no rows to be tuned on.
std::string TuningNote(const RunPlan& run, const data::Dataset& dataset) {
  if (!run.evaluation.heldout || run.evaluation.fine_tune.steps == 0) return "";
  const auto joins_later = [&](ClientId client) {
    return dataset.Examples(client, data::Split::kTest) > 0 &&
           dataset.Examples(client, data::Split::kTrain) == 0;
  };
  const uint64_t clients = CountClients(dataset, joins_later);
  const uint64_t without = CountClients(dataset, [&](ClientId client) {
    return joins_later(client) && dataset.Examples(client, data::Split::kValidation) == 0;
  });
  if (without == 0) return "";
  return absl::StrCat(without, " of ", clients,
                      " clients that join later have test rows and none to tune on, so "
                      "heldout_test_tuned_* say nothing of them and are over other clients "
                      "than heldout_test_*: raise data.heldout_tuning");
}

std::string ConceptShiftNote(const RunPlan& run, const data::Dataset& dataset) {
  if (ConceptGroups(run.transform, run.seed).count() <= 1) return "";
  const uint32_t groups = run.transform.concept_shift_groups;
  std::string note = absl::StrCat("data.concept_shift: ", groups,
                                  " groups of clients see the same rows in different ways");
  if (run.evaluation.central) {
    absl::StrAppend(&note, "; test_* are over the central test set as each of them sees it, ",
                    "test_group0_* to test_group", groups - 1, "_* over one view each");
  }
  if (run.evaluation.clients && AnyHas(dataset, data::Split::kTest))
    absl::StrAppend(&note, "; clients_test_group0_* and so on are over one group's clients");
  return note;
}

// Of clients that are to be tested on rows of their own, and have none.
std::string UntestedNote(const Config& config, const algorithms::Description& rule,
                         const data::Dataset& dataset) {
  if (rule.has_personal_models) return PersonalModelsNote(config, rule, dataset);
  if (!config.run.evaluation.clients || AnyHas(dataset, data::Split::kTest)) return "";
  return "evaluation.clients tests clients on rows of their own, but no client has test rows "
         "(clients_test_* will be null): set data.client_test_fraction, or give them with the data";
}

std::string UnvalidatedNote(const RunPlan& run, const data::Dataset& dataset) {
  if (!run.evaluation.validation || dataset.info().val_examples > 0 ||
      AnyHas(dataset, data::Split::kValidation)) {
    return "";
  }
  return "evaluation.splits names validation, but no client has validation rows (clients_val_* "
         "will be null): set data.val_fraction, or data.central_val_fraction for val_*";
}

std::string OneClassNote(const RunPlan& run, const data::DatasetInfo& data) {
  if (run.task != TaskKind::kClassification || data.classes != 1) return "";
  return "all rows have one class, 0, so a model that has learned nothing is always right: its "
         "accuracy is 1 and its loss 0. Look at the labels; classes that no row has are "
         "data.classes";
}

}  // namespace

std::vector<std::string> ClientNotes(const Config& config, const models::ModelSpec& spec,
                                     const algorithms::Description& rule,
                                     const data::Dataset& dataset) {
  const RunPlan& run = config.run;
  const bool joins = spec.has_buffers();  // EpochBatches::Of
  std::vector<std::string> notes;
  const auto add = [&](std::string note) {
    if (!note.empty()) notes.push_back(std::move(note));
  };
  add(UntestedNote(config, rule, dataset));
  add(OneClassNote(run, dataset.info()));
  AddNotesOnSteps(run, joins, dataset, notes);
  add(BatchesNote(run, joins, rule, dataset));
  add(CentralValidationNote(rule, dataset.info()));
  // A metric that is named is the user's own choice. One that was filled in is of val_*.
  const std::string& stop = config.node.server.stop.metric;
  if (stop.empty() || absl::StartsWith(stop, "val_")) add(CommonValidationNote(run, rule, dataset));
  if (run.evaluation.clients)
    add(SplitNote(dataset, data::Split::kTest, "test", "clients_test_",
                  "data.client_test_fraction"));
  if (run.evaluation.validation) {
    add(SplitNote(dataset, data::Split::kValidation, "validation", "clients_val_",
                  "data.val_fraction"));
  }
  add(UnvalidatedNote(run, dataset));
  add(TunedClientsNote(run, dataset));
  add(TuningNote(run, dataset));
  const bool owners = config.node.workers.owners > 0;
  add(NoteOnGroups(run, dataset, owners ? MatchedBy::kNumber : MatchedBy::kName));
  add(ConceptShiftNote(run, dataset));
  return notes;
}

}  // namespace macaw::cli
