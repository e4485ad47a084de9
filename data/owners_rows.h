#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"

namespace macaw::data {

// What a device of a fleet brings of its data: the clients, and no test set for all. Where the data
// says nothing of clients and is one by its partition, that client is named like the node, and the
// data's test and validation sets are its own test and validation rows. Rows are not copied.
std::unique_ptr<Dataset> OwnersRows(std::unique_ptr<Dataset> dataset, std::string node);

}  // namespace macaw::data
