#include "cli/simulate/made_again.h"

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config/resolve.h"
#include "cli/config/settings.h"
#include "core/one_line.h"
#include "core/status.h"
#include "data/dataset.h"
#include "sdk/catalogue.h"
#include "server/opening.h"

namespace macaw::cli {

absl::Status CheckMaySet(const Override& override, absl::string_view who) {
  const std::string& key = override.key;
  const std::vector<Field>& fields = AllFields();
  const auto field = std::ranges::find(fields, key, &Field::key);
  const bool is_table = std::ranges::any_of(
      fields, [&](const Field& one) { return absl::StartsWith(one.key, key + "."); });
  const bool is_rule = key == "algorithm" || absl::StartsWith(key, "algorithm.");
  if (field == fields.end() && !is_table && !is_rule)
    return absl::OkStatus();  // the reader names what was meant
  const bool is_file = field != fields.end() && (field->is_path || key == "data.source");
  if (is_file || OnlyComputes(key)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      override.place, ": ", who, " keeps ", key,
      ", which decides the result; it takes paths of files that have moved, and where and how the "
      "run is computed"));
}

absl::Status CheckDataOf(const Document& document, const std::vector<Override>& overrides,
                         const std::string& digest) {
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, overrides));
  MACAW_ASSIGN_OR_RETURN(const Config config,
                         ReadConfig(document, overrides, catalogue, Idle::kLeaveOut));
  if (config.node.workers.owners > 0 || digest.empty()) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  const std::string here = dataset->info().digest.Hex();
  if (here == digest) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("these are not the data of the run: their digest is ", here, ", and the run's ",
                   OneLine(digest)));
}

absl::StatusOr<std::string> ConfigurationDigest(const Document& document,
                                                const std::vector<Override>& overrides) {
  MACAW_ASSIGN_OR_RETURN(const sdk::Catalogue catalogue, LoadCatalogue(document, overrides));
  MACAW_ASSIGN_OR_RETURN(Config config,
                         ReadConfig(document, overrides, catalogue, Idle::kLeaveOut));
  if (config.run.devices.on()) MACAW_RETURN_IF_ERROR(ReadDevices(config).status());
  return server::DigestOfRun(config.run).Hex();
}

}  // namespace macaw::cli
