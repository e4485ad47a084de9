#include "cli/check_node.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/config/other_side.h"
#include "cli/config/reader.h"
#include "cli/config/resolve.h"
#include "core/status.h"
#include "data/foreign_token.h"
#include "identity/node_files.h"
#include "identity/verify.h"
#include "worker/registration.h"

namespace macaw::cli {
namespace {

void Line(absl::string_view what, absl::string_view text) {
  std::cout << absl::StrFormat("%-10s %s\n", what, text) << std::flush;
}

absl::Status PrintIdentity(const std::string& folder) {
  if (folder.empty()) {
    Line("identity", "none (node.identity): only a server on this machine can be reached");
    return absl::OkStatus();
  }
  MACAW_ASSIGN_OR_RETURN(const identity::NodeIdentity own,
                         identity::ReadIdentity(identity::IdentityFiles::In(folder)));
  MACAW_RETURN_IF_ERROR(
      identity::Verify(own.certificate, own.authority, identity::Side::kClient, absl::Now()));
  const identity::Certificate& certificate = own.certificate;
  Line("identity",
       absl::StrCat(identity::Name(certificate.subject().role), " \"", certificate.subject().name,
                    "\" of \"", own.authority.subject().name, "\", until ",
                    absl::FormatTime("%Y-%m-%d %H:%M UTC", certificate.validity().until,
                                     absl::UTCTimeZone())));
  return absl::OkStatus();
}

// The names under which the clients are known: those of the registry must be the same.
std::string NamesOf(const data::Dataset& dataset) {
  constexpr uint64_t kMost = 5;
  std::vector<std::string> names;
  for (ClientId client; client.value < std::min(dataset.info().clients, kMost); ++client.value)
    names.push_back(absl::StrCat("\"", dataset.ClientName(client), "\""));
  return absl::StrCat(absl::StrJoin(names, ", "), dataset.info().clients > kMost ? ", …" : "");
}

// An embedding of as many tokens needs some 100 MB while it is trained.
constexpr int64_t kMostTokens = 1'000'000;

// Gives the sample a small model for this data. Tokens are classified by their texts: what is
// predicted, the server's file says, and each row has a label.
absl::Status TakeSmallModel(const data::Dataset& dataset, RunPlan& sample) {
  const data::DatasetInfo& info = dataset.info();
  sample.model.name = "logistic";
  if (info.feature_type != data::FeatureType::kI32) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::optional<data::ForeignToken> largest,
                         data::FindForeignToken(dataset, /*known=*/1, UINT64_MAX));
  const int64_t tokens = largest.has_value() ? std::max<int64_t>(largest->token, 0) + 1 : 1;
  if (tokens > kMostTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data have the token number ", tokens - 1,
                     ", and the small model of this check knows those below ", kMostTokens,
                     ": look at the data, or try the model of a run with --plan FILE"));
  }
  sample.task = info.classes > 0 ? TaskKind::kClassification : TaskKind::kRegression;
  sample.model.name = "layers";
  sample.model.layers = {absl::StrCat("embedding ", tokens, " 8"), "mean",
                         absl::StrCat("linear ", std::max<int64_t>(info.classes, 1))};
  return absl::OkStatus();
}

// The plan of a server's file, or a small one for this data.
absl::StatusOr<RunPlan> PlanFor(const std::string& file, const Config& node,
                                const data::Dataset& dataset, const sdk::Catalogue& catalogue) {
  if (!file.empty()) {
    MACAW_ASSIGN_OR_RETURN(const Document document, OpenDocument(file));
    MACAW_ASSIGN_OR_RETURN(const Config config, ReadConfig(document, {}, catalogue));
    if (IsResolved(config.run)) return config.run;
    return absl::InvalidArgumentError(absl::StrCat(
        file, " leaves open what follows from its data: write a server's file with `macaw plan`"));
  }
  Config sample = node;
  MACAW_RETURN_IF_ERROR(TakeSmallModel(dataset, sample.run));
  sample.run.cohort.size = 1;
  MACAW_ASSIGN_OR_RETURN(sample.run.algorithm, catalogue.algorithms().Complete({"fedavg", {}}));
  sample.run.plugins = catalogue.plugins();
  MACAW_RETURN_IF_ERROR(Resolve(sample, dataset, catalogue));
  return sample.run;
}

}  // namespace

absl::Status CheckNode(const Document& document, const Config& config, const std::string& plan,
                       const worker::Options& options, const data::Dataset& dataset,
                       const sdk::Catalogue& catalogue, training::Backends& backends) {
  MACAW_RETURN_IF_ERROR(PrintIdentity(config.node.fleet.identity));
  const data::DatasetInfo& info = dataset.info();
  Line("data",
       absl::StrCat(info.clients, info.clients == 1 ? " client, " : " clients, ",
                    info.train_examples, " training rows of shape [",
                    absl::StrJoin(info.input_shape, ", "), "], ", info.classes, " classes; ",
                    options.owner ? "its own (node.owner)" : "shared with other workers"));
  if (options.owner) {
    Line("brings", absl::StrCat(NamesOf(dataset),
                                ": the names with which the node is invited (`macaw pki list`)"));
  }
  MACAW_RETURN_IF_ERROR(worker::TableOf(dataset, options.by_name).status());
  for (const std::string& note : info.notes) Line("note", note);
  if (const std::string note = NoteOnServersTables(document); !note.empty()) Line("note", note);
  MACAW_ASSIGN_OR_RETURN(const RunPlan run, PlanFor(plan, config, dataset, catalogue));
  Config planned = config;
  planned.run = run;
  MACAW_ASSIGN_OR_RETURN(const models::ModelSpec spec, SpecOf(planned));
  MACAW_RETURN_IF_ERROR(CheckTokens(planned, spec, dataset));
  MACAW_ASSIGN_OR_RETURN(const worker::Trial trial,
                         worker::Try(options, dataset, run, catalogue.algorithms(), backends));
  Line("back end", trial.profile);
  Line("trained", absl::StrCat("one step of ", run.algorithm.name, " on ", run.model.name, ", ",
                               trial.parameters, " parameters; its largest client has ",
                               trial.largest, " rows, ", trial.steps, " steps a round"));
  Line("moves", absl::StrCat("about ", trial.bytes_down, " bytes down and ", trial.bytes_up,
                             " up for a client in a round",
                             trial.base_bytes > 0
                                 ? absl::StrCat("; ", trial.base_bytes,
                                                " down once, for the model's frozen tensors")
                                 : ""));
  MACAW_ASSIGN_OR_RETURN(const std::string declined, worker::WhyNotNow(options));
  if (options.accept.conditional())
    Line("now", declined.empty() ? "it may work" : absl::StrCat("it does not work: ", declined));
  Line("ready", plan.empty() ? "for runs on such data; with --plan FILE a certain run is tried"
                             : "for this run");
  return absl::OkStatus();
}

}  // namespace macaw::cli
