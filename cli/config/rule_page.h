#pragma once

#include <map>
#include <string>

#include "algorithms/around/registry.h"

namespace macaw::cli {

// What a rule's description and its schema say, for a terminal: formula, parameters, what travels,
// what clients keep, remarks.
std::string RuleText(const algorithms::Registry& registry, const algorithms::Description& rule);

// The same for all rules of `registry` as pages of Markdown: NAME.md for each, and README.md, which
// lists them. By file name.
std::map<std::string, std::string> RulePages(const algorithms::Registry& registry);

}  // namespace macaw::cli
