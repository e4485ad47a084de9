#include "server/engine/node_checks.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::server {
namespace {

constexpr uint64_t kMostChunks = 1 << 20;  // of the central test set; each is a task in memory
constexpr uint32_t kMostSlots = 4096;      // of one node; more would hold most of any cohort
// Profiles stay in memory and in each checkpoint, and a node may say another one each time.
constexpr size_t kMostProfiles = 256;
constexpr size_t kLongestProfile = 1024;  // bytes

// Whether the node's program and the form of its examples fit the run.
absl::Status CheckForm(const JoinedRun& to, const fleet::RegisterRequest& request) {
  const RunPlan& run = to.options.run;
  if (request.name.empty() || request.slots == 0)
    return absl::FailedPreconditionError("it has no name or no slots");
  if (request.slots > kMostSlots) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has ", request.slots, " slots; at most ", kMostSlots));
  }
  if (to.live && request.clients > 0 && !request.arrives) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its program (", request.program.empty() ? "an older Macaw" : request.program,
        ") cannot take part in rounds that do not wait for each other (round.mode = \"",
        run.asynchronous.mode, "\"): update it"));
  }
  if (request.input_shape != run.model.input_shape) {
    return absl::FailedPreconditionError(
        "its examples have another shape than the run's model.input_shape");
  }
  const bool by_class = run.task == TaskKind::kClassification || run.task == TaskKind::kNextToken;
  // Fewer classes may be numbered otherwise, so a node that lacks one has to say how many there
  // are.
  const int64_t classes = run.task == TaskKind::kBinary ? 2 : run.model.classes;
  if ((by_class || run.task == TaskKind::kBinary) && request.classes != classes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its data has ", request.classes, " classes, the run's model ", classes,
        request.classes < classes && request.classes > 0
            ? absl::StrCat(": set data.classes = ", classes, " on the node, if its data lacks some")
            : ""));
  }
  const uint64_t central_rows = std::max(request.central_test_rows, request.central_val_rows);
  // Each group of concept shift sees the set in its own way.
  const uint64_t groups = ConceptGroups(run.transform, run.seed).count();
  const uint64_t sets = groups + (run.attack.on() && run.attack.backdoor() ? 1 : 0);
  if (central_rows / run.evaluation.chunk > kMostChunks / sets) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its test set of ", central_rows, " rows makes more than ", kMostChunks,
        " chunks of evaluation.chunk = ", run.evaluation.chunk, " rows",
        groups > 1 ? absl::StrCat(" for ", groups, " groups of data.concept_shift") : "",
        ": raise that"));
  }
  return absl::OkStatus();
}

absl::Status CheckClients(const JoinedRun& to, const fleet::RegisterRequest& request,
                          const fleet::ClientTable& table) {
  const RunPlan& run = to.options.run;
  const bool whole = request.clients > 0 && table.names.empty();  // the clients are numbered
  if (whole && run.clients != 0 && request.clients != run.clients) {
    return absl::FailedPreconditionError(
        absl::StrCat("its data has ", request.clients, " clients, the run ", run.clients));
  }
  if (whole && to.options.data_digest.has_value() &&
      *to.options.data_digest != request.data_digest) {
    const uint64_t rows = std::accumulate(table.rows.begin(), table.rows.end(), uint64_t{0});
    // Older versions left these clients their rows, whatever data.test_fraction said.
    const bool cuts =
        request.central_test_rows > 0 && rows + request.central_test_rows == run.train_examples;
    return absl::FailedPreconditionError(absl::StrCat(
        "its data (files, partition or seed) differs from what the checkpoint was trained on",
        cuts ? absl::StrCat(": data.test_fraction now cuts a central test set of ",
                            Counted(request.central_test_rows, "row"),
                            " off these clients' rows; remove it from the run's config.toml, "
                            "and the run goes on")
             : ""));
  }
  if (request.clients > 0 && run.cohort.weight == WeightPolicy::kTokens && table.tokens.empty()) {
    return absl::FailedPreconditionError(
        "cohort.weight is \"tokens\", but its data does not hold sequences");
  }
  if (to.options.data_digest.has_value() && to.roster.Replaces(request).has_value()) {
    return absl::FailedPreconditionError(
        "its data (files, partition or seed) differs from what the checkpoint was trained on: give "
        "it the data that it began with, or begin another run");
  }
  MACAW_RETURN_IF_ERROR(to.roster.Check(request, table));
  const uint64_t clients = to.roster.ClientsWith(request);
  if (run.clients != 0 && clients > run.clients) {
    return absl::FailedPreconditionError(absl::StrCat("with its ", request.clients,
                                                      " clients there are ", clients,
                                                      ", the run has ", run.clients));
  }
  return absl::OkStatus();
}

absl::Status CheckProfile(const JoinedRun& to, const fleet::RegisterRequest& request) {
  const NumericProfile& own = request.profile;
  if (own.trainer.size() + own.instruction_set.size() + own.libraries.size() > kLongestProfile) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its numeric profile has more than ", kLongestProfile, " bytes, which no program says"));
  }
  if (to.options.instruction_set != "auto" &&
      request.profile.instruction_set != to.options.instruction_set) {
    return absl::FailedPreconditionError(
        absl::StrCat("its numeric profile is ", ToString(request.profile),
                     ", and server.instruction_set asks for ", to.options.instruction_set,
                     ": set workers.instruction_set on the node"));
  }
  if (!to.options.mixed_profiles && !to.profiles.empty() &&
      request.profile != to.profiles.front()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its numeric profile ", ToString(request.profile), " differs from the run's ",
                     ToString(to.profiles.front()),
                     ", so its results would not be reproducible; server.mixed_profiles = "
                     "true accepts that"));
  }
  if (to.profiles.size() >= kMostProfiles &&
      std::ranges::find(to.profiles, request.profile) == to.profiles.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its numeric profile ", ToString(request.profile), " would be one more than ",
                     kMostProfiles, ", and a run takes no more: give the nodes the same program"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNode(const JoinedRun& to, const fleet::RegisterRequest& request,
                       const fleet::ClientTable& table) {
  absl::Status why = CheckForm(to, request);
  if (why.ok()) why = CheckClients(to, request, table);
  if (why.ok()) why = CheckProfile(to, request);
  if (why.ok()) return why;
  return absl::FailedPreconditionError(
      absl::StrCat("worker \"", request.name, "\" cannot join: ", why.message()));
}

std::string ToString(const NumericProfile& profile) {
  return absl::StrCat("(", profile.trainer, ", ", profile.instruction_set, ", ", profile.libraries,
                      ")");
}

}  // namespace macaw::server
