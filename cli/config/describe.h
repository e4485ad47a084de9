#pragma once

#include <string>
#include <vector>

#include "cli/config/config.h"
#include "sdk/catalogue.h"

namespace macaw::cli {

// The types of the values that a key takes, found by giving it one of each: "boolean", "integer",
// "number" (integers, too), "string", "list of strings", "list of integers", "list of numbers".
std::vector<std::string> TypesOf(const Field& field);

// Everything that a configuration can say, as one JSON object: `macaw keys --json`. Other
// languages make their types and their documentation from it (python/generate.py).
//   version     of the program
//   keys        key, types, default (absent: none that is fixed), help, expected, choices,
//               instead_of (keys that say the same thing), role, path, seed, needs
//   algorithms  name, summary, paper, formula, remarks, parameters (name, type, default, help,
//               expected, choices)
//   partitions  name, help
//   models      name, summary, layers
//   layers      text (the syntax), help
//   columns     of metrics.jsonl: columns (a name or a pattern: * for a metric, words in capitals
//               for names), help
//   statistics  over clients: name, help
std::string DescribeJson(const sdk::Catalogue& catalogue, const std::string& version);

}  // namespace macaw::cli
