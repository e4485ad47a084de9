#pragma once

#include "core/peer/json.h"
#include "plan/local.h"

namespace macaw::training {

// [local] as a process of the owner's is told it: every key, without the schedule, which is part of
// lr.
peer::Json ToJson(const LocalConfig& local);

}  // namespace macaw::training
