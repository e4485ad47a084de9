#pragma once

#include "cli/config/fields.h"

namespace macaw::cli {

// The keys whose values no plain kind of field_types.h reads: used by fields.cc alone.
Field DTypeField();
Field WeightField();
Field ResidentField();
Field LabelColumnField();
Field ClientColumnField();
Field StopAtLeast();
Field SplitsField();

}  // namespace macaw::cli
