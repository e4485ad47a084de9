#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/diff/diff.h"
#include "cli/diff/trace.h"

// What is known of two runs beside their rounds. Private to this folder.
namespace macaw::cli {

// "finished, 10 rounds"
std::string WhatItIs(const Trace& trace);
// Fills in the settings and facts that differ.
void CompareFacts(const Trace& a, const Trace& b, DiffReport& report);
// Of each round of which both have a model, by round.
std::vector<ModelDifference> CompareModels(const Trace& a, const Trace& b, double tolerance);
// How many rounds and columns both have; an error if there is nothing to compare. The report has
// its models.
absl::Status CountCommon(const Trace& a, const Trace& b, DiffReport& report);

}  // namespace macaw::cli
