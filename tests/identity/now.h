#pragma once

#include "absl/time/time.h"

namespace macaw::identity::fixtures {

inline const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);  // when these tests happen

}  // namespace macaw::identity::fixtures
