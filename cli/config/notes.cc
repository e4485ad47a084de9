#include "cli/config/notes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config/client_notes.h"
#include "cli/config/client_state.h"
#include "cli/config/idle_keys.h"
#include "cli/config/settings.h"
#include "cli/config/toml.h"
#include "core/spelling.h"
#include "data/overlap.h"
#include "plan/quorum.h"
#include "scheduler/cohort.h"
#include "training/api/round_local.h"
#include "training/api/schedule.h"

namespace macaw::cli {
namespace {

// Whether rounds in virtual time wait until all their places are taken, whatever the deadline.
bool DeadlineChangesNothing(const RunPlan& run) {
  const DevicesConfig& devices = run.devices;
  if (!devices.on() || devices.deadline <= 0 || devices.drops_below) return false;
  if (run.cohort.sampling == "poisson") return devices.quorum >= 1;  // cohorts of any size
  const uint64_t asked = std::min(scheduler::AskedClients(run.cohort), TrainClients(run));
  uint64_t places = asked;
  if (run.cohort.over_selection > 1) places = std::min(places, run.cohort.size);
  if (devices.enough > 0) places = std::min(places, devices.enough);
  return NeededOf(devices.quorum, asked) >= places;
}

// The numbers of the model that are not frozen: those that clients send.
uint64_t TrainedNumbers(const models::ModelSpec& spec) {
  uint64_t numbers = 0;
  const std::vector<LayoutEntry>& entries = spec.layout->entries();
  for (size_t i = 0; i < entries.size(); ++i)
    numbers += !spec.frozen.empty() && spec.frozen[i] ? 0 : entries[i].size;
  return numbers;
}

// What a round costs that is evaluated without each of its clients. 8 bytes a number of a sum, 4 of
// a model.
std::string LeaveOneOutNote(const RunPlan& run, const models::ModelSpec& spec) {
  const uint32_t every = run.evaluation.leave_one_out;
  const double megabytes =
      12e-6 * static_cast<double>(TrainedNumbers(spec)) * static_cast<double>(run.cohort.size);
  return absl::StrCat(
      "evaluation.leave_one_out: ", every == 1 ? "each round" : absl::StrCat("a round in ", every),
      " also tests up to ", run.cohort.size,
      " models, each without one client, and the server "
      "then holds some ",
      std::max<int64_t>(1, std::llround(megabytes)), " MB for them");
}

// What decides, beside other keys, whether a key has an effect.
struct Facts {
  const Config& config;
  const models::ModelSpec& spec;
  const data::DatasetInfo& data;
  bool keeps_states;

  // Whether the data's own clients are the run's, although no key says so.
  bool natural() const {
    const data::PartitionOptions& partition = config.node.partition;
    const uint64_t asked = partition.clients == 0 ? data::kDefaultClients : partition.clients;
    return partition.scheme == "auto" && !partition.train_together && data.clients != asked;
  }
};

// Keys that data, model or rule leave without an effect, each for itself or a table of them.
struct IdleHere {
  const char* key;  // "partition.clients", "state."
  bool (*idle)(const Facts&);
  const char* why;
};
constexpr char kNatural[] =
    "on data with clients of its own: partition.scheme divides the rows again";
constexpr IdleHere kIdleHere[] = {
    {"partition.clients", [](const Facts& facts) { return facts.natural(); }, kNatural},
    {"partition.min_size", [](const Facts& facts) { return facts.natural(); }, kNatural},
    {"data.normalise.",
     [](const Facts& facts) {
       return facts.data.feature_type == data::FeatureType::kI32 &&
              facts.config.run.transform.normalises();
     },
     "on rows of tokens"},
    {"model.buffers", [](const Facts& facts) { return !facts.spec.has_buffers(); },
     "on a model without batch-norm statistics"},
    {"state.", [](const Facts& facts) { return !facts.keeps_states; },
     "with this algorithm, whose clients keep no state"},
    {"node.server", [](const Facts&) { return true; },
     "in a simulation, which starts the workers itself"},
};

// Of the keys that are not at their defaults.
std::vector<std::string> IdleHereNotes(const Facts& facts) {
  const Config defaults;
  std::vector<std::string> notes;
  for (const Field& field : AllFields()) {
    const std::optional<Value> value = field.Shown(facts.config);
    if (!value.has_value() || value == field.get(defaults)) continue;
    for (const IdleHere& here : kIdleHere) {
      const absl::string_view key = here.key;
      const bool meant =
          absl::EndsWith(key, ".") ? absl::StartsWith(field.key, key) : field.key == key;
      if (meant && here.idle(facts)) notes.push_back(TextOf({field.key, here.why}));
    }
  }
  return notes;
}

// The wire looks for zeros, levels and half floats in vectors of floats (aggregation, fleet). Sums
// of doubles are integers with the bits that they use, and other doubles take eight bytes.
std::string DoublesNote(const RunPlan& run) {
  if (run.dtype != DType::kF64 || !(run.update.on() || run.broadcast.on())) return "";
  std::string note = "run.dtype is \"float64\", and the short forms of vectors are for float32: ";
  if (run.update.on()) {
    absl::StrAppend(&note,
                    "what is not zero goes up in several times the bytes (\"bits 8\" in some "
                    "32 bits a weight in place of 8)");
  }
  if (run.broadcast.on()) {
    absl::StrAppend(&note, run.update.on() ? ", and " : "",
                    "the model goes down in 64 bits a weight, so broadcast.codec saves nothing and "
                    "costs accuracy");
  }
  return absl::StrCat(note, ". Set run.dtype = \"float32\"");
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

// The first and the last H of local.qsr, and what stands out of them.
void AddNotesOnQuadraticSteps(const RunPlan& run, std::vector<std::string>& notes) {
  if (run.local.qsr == 0 || run.local.steps == 0 || run.rounds == 0) return;
  const auto steps = [&](uint32_t round) { return training::RoundLocal(run, Round(round)).steps; };
  const Schedule schedule = training::LocalSchedule(run);
  const uint32_t most = training::MostLocal(run).steps, base = run.local.steps;
  std::string note = absl::StrCat("local.qsr: ", Counted(steps(1), "local step"), " in round 1, ",
                                  steps(run.rounds), " in round ", run.rounds);
  if (most > std::max(steps(1), steps(run.rounds))) absl::StrAppend(&note, ", at most ", most);
  if (schedule.warmup_rounds > 0) {
    absl::StrAppend(&note, "; local.steps in the ", Counted(schedule.warmup_rounds, "round"),
                    " of warm-up");
  }
  if (most == base) {
    absl::StrAppend(&note, "; no round has more than local.steps = ", base,
                    ", so it changes nothing: (local.qsr / learning rate)^2 is never more");
  } else if (schedule.kind == "constant") {
    absl::StrAppend(&note, "; the learning rate does not fall, so local.steps = ", most,
                    " says the same");
  }
  if (most >= training::kMostQuadraticSteps && base < most) {
    absl::StrAppend(&note, "; more than ", training::kMostQuadraticSteps,
                    " are never taken: a smaller local.qsr, or a schedule that ends above 0 "
                    "(local.lr_schedule.floor), keeps them fewer");
  }
  notes.push_back(std::move(note));
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
  AddNotesOnQuadraticSteps(run, notes);
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
  std::vector<std::string> notes = ScheduleNotes(run);
  for (const IdleKey& key : config.idle) notes.push_back(TextOf(key));
  for (const std::string& unused : UnusedParameters(config)) {
    notes.push_back(absl::StrCat(unused, " is not used: the algorithm is ", run.algorithm.name));
  }
  const auto states = StateItemsOf(config, spec, registry);
  const Facts facts{config, spec, dataset.info(), !states.ok() || !states->empty()};
  for (std::string& note : IdleHereNotes(facts)) notes.push_back(std::move(note));
  if (algorithm->notes) {
    for (std::string& note : algorithm->notes(algorithms::SetupOf(run, spec.layout)))
      notes.push_back(std::move(note));
  }
  for (std::string& note : ClientNotes(config, spec, *algorithm, dataset))
    notes.push_back(std::move(note));
  if (DeadlineChangesNothing(run)) {
    notes.push_back(
        absl::StrCat("round.deadline changes nothing: with round.quorum = ", run.devices.quorum,
                     " a round waits until all of its places are taken. Set a smaller "
                     "round.quorum, or round.below_quorum = \"drop\""));
  }
  constexpr double kLargeForAdam = 0.01;
  if (run.local.optimizer != "sgd" && run.local.lr > kLargeForAdam) {
    notes.push_back(absl::StrCat("local.lr = ", run.local.lr, " is large for ", run.local.optimizer,
                                 ", whose steps are about as long as the rate; usual is 0.001"));
  }
  if (run.evaluation.leave_one_out > 0) notes.push_back(LeaveOneOutNote(run, spec));
  const bool of_clients = run.evaluation.clients || run.evaluation.heldout ||
                          run.evaluation.validation || run.evaluation.train;
  const bool central = dataset.info().test_examples > 0 || dataset.info().val_examples > 0;
  if (run.evaluation.metrics.any() && !of_clients && !central) {
    notes.push_back(
        "evaluation.metrics has nothing to count: there is no central test set, and "
        "evaluation.clients is false");
  }
  if (const std::string note = SmallCohortNote(config); !note.empty()) notes.push_back(note);
  if (const std::string note = DoublesNote(run); !note.empty()) notes.push_back(note);
  if (run.privacy.on() &&
      TransformConfig{.mean = run.transform.mean, .std = run.transform.std}.normalises()) {
    notes.push_back(
        "privacy: data.normalise is taken for numbers that are known from outside: epsilon does "
        "not cover numbers that were computed from the clients' rows");
  }
  constexpr uint64_t kMostValues = 4'000'000;  // some milliseconds
  if (std::string note = data::OverlapNote(dataset, kMostValues); !note.empty())
    notes.push_back(std::move(note));
  return notes;
}

}  // namespace macaw::cli
