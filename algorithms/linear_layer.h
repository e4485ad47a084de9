#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/api/description.h"

namespace macaw::algorithms {

// The one layer of a model that a rule solves for instead of training it: W·x + b.
struct LinearLayer {
  size_t inputs = 0;
  size_t outputs = 0;
  bool bias = true;

  // Of the run's model, which must be ["linear K"], with "flatten" before it for images. `what`
  // says in the error what the rule does. Where the run says nothing of layers, as in a test: of a
  // layout with one matrix, and a vector behind it if it has a bias.
  static absl::StatusOr<LinearLayer> Of(const Setup& setup, absl::string_view what);
};

}  // namespace macaw::algorithms
