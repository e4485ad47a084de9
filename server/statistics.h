#pragma once

namespace macaw::server {

// A statistic over clients is a metric's column with _ and one of these behind it.
inline constexpr const char* kClientStatistics[] = {"mean", "std", "gini", "worst10",
                                                    "p10",  "p50", "p90"};

}  // namespace macaw::server
