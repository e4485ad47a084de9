#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace macaw::data {

// The same clients, of which the first has everybody's training rows, in the order of the clients,
// and the others have none. Validation and test rows stay with their clients. The training rows are
// copied when somebody first asks for them, and know whose each was (Rows::owners), by the client's
// place in the dataset. Takes ownership of the dataset. Rows that are only
// declared (DatasetInfo::declared), and more than 2³² − 1 of them, are an error.
absl::StatusOr<std::unique_ptr<Dataset>> TrainTogether(std::unique_ptr<Dataset> dataset);

}  // namespace macaw::data
