#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "data/examples.h"

namespace macaw::data {

// Refuses a row with a feature that is NaN or infinite, by its number in the file `path`. Nothing
// is read where `path` is empty (Examples::unchecked): the features are known to be finite. Takes
// as long as reading the rows from memory, some gigabytes a second.
absl::Status CheckFeatures(const std::string& path, const ExampleBlock& block, RowRange rows);
absl::Status CheckFeatures(const std::string& path, const ExampleBlock& block,
                           std::span<const uint32_t> rows);

// Checks the features of the file `path`: all of them, or those of its central sets, and then
// Examples::unchecked names it.
absl::Status CheckAtOpening(const std::string& path, bool all, Examples& examples);

// Loads the rows of each client once, for people who look at data. Errors: those of loading.
absl::Status LoadEachClient(const Dataset& dataset);

}  // namespace macaw::data
