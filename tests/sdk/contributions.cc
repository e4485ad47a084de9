// A plug-in for the loader's tests. MACAW_TEST_CONTRIBUTION says what becomes of what it adds.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "sdk/plugin.h"

namespace {

absl::StatusOr<std::vector<std::string>> Layers(const std::vector<int64_t>&, int64_t outputs) {
  return std::vector<std::string>{absl::StrCat("linear ", outputs)};
}

absl::StatusOr<std::unique_ptr<macaw::data::Dataset>> Open(const macaw::data::DataOptions&,
                                                           const macaw::data::PartitionOptions&) {
  return absl::UnimplementedError("a name only");
}

absl::Status Contribute(macaw::sdk::Catalogue& catalogue) {
  const char* const given = std::getenv("MACAW_TEST_CONTRIBUTION");
  const std::string what = given == nullptr ? "" : given;
  MACAW_RETURN_IF_ERROR(catalogue.AddModel({"small-net", "a layer", Layers}));
  MACAW_RETURN_IF_ERROR(catalogue.AddDataSource({"nowhere", "no rows", Open}));
  if (what == "taken") return catalogue.AddModel({"logistic", "another", Layers});
  if (what == "fails") return absl::UnavailableError("the licence server is away");
  if (what == "throws") throw std::runtime_error("out of luck");
  return absl::OkStatus();
}

}  // namespace

MACAW_PLUGIN("contributions", "0.1", Contribute)
