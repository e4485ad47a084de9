#include "data/dataset.h"

#include "absl/strings/str_cat.h"

namespace macaw::data {

std::string Dataset::ClientName(ClientId client) const { return absl::StrCat(client.value); }

}  // namespace macaw::data
