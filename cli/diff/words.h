#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cli/diff/trace.h"
#include "server/log/record.h"

namespace macaw::cli {

// "only the first run has clients 3, 17, only the second has client 5"; "": the same sets.
std::string SetsText(const std::set<uint64_t>& a, const std::set<uint64_t>& b);

// What differs between two cohorts, of which something does.
std::string CohortText(const std::vector<server::log::Member>& a,
                       const std::vector<server::log::Member>& b);

// "round 3", "rounds 2, 4 to 6 and 9 more". Not empty.
std::string RoundsText(const std::vector<RoundSpan>& ranges);

}  // namespace macaw::cli
