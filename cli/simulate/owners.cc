#include "cli/simulate/owners.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "core/files.h"
#include "core/status.h"
#include "data/prepared.h"
#include "data/subset.h"

namespace macaw::cli {

std::string OwnerName(uint32_t owner) { return absl::StrCat("owner-", owner); }

std::string OwnerFolder(const std::string& run, uint32_t owner) {
  return absl::StrCat(run, "/owners/", OwnerName(owner));
}

absl::Status MakeOwners(const Config& config, const sdk::Catalogue& catalogue,
                        const std::string& run) {
  if (config.node.workers.owners == 0) return absl::OkStatus();
  MACAW_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                         catalogue.OpenDataset(config.node.data, config.node.partition));
  for (uint32_t owner = 0; owner < config.node.workers.owners; ++owner) {
    const std::string folder = OwnerFolder(run, owner);
    const std::string file = folder + "/data.safetensors";
    if (FileExists(file)) continue;
    MACAW_RETURN_IF_ERROR(MakeDirectories(folder));
    MACAW_ASSIGN_OR_RETURN(
        const std::unique_ptr<data::Dataset> own,
        data::SubsetOf(*dataset, {.begin = owner, .end = owner + 1, .central_test = false}));
    MACAW_RETURN_IF_ERROR(Annotate(data::WritePrepared(*own, file),
                                   absl::StrCat("client ", owner, " cannot be an owner")));
  }
  return absl::OkStatus();
}

}  // namespace macaw::cli
