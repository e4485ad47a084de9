#pragma once

#include "cli/config/fields.h"

namespace macaw::cli {

// Keys whose values none of the plain kinds of field_types.h can read. Used by fields.cc only.
Field DTypeField();
Field WeightField();
Field ResidentField();
Field LabelColumnField();
Field ClientColumnField();
Field StopAtLeast();
Field SplitsField();

}  // namespace macaw::cli
