#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "algorithms/api/description.h"

namespace macaw::algorithms {

// An invertible function behind a linear layer.
enum class Activation : uint8_t { kNone, kTanh, kSigmoid };

double Activate(Activation activation, double z);
// f'(z), by h = f(z).
double SlopeAt(Activation activation, double h);

// The linear layers of a model that a rule solves for, one after another.
struct LinearChain {
  struct Layer {
    size_t inputs = 0, outputs = 0;
    Activation after = Activation::kNone;
    size_t weight = 0;                          // where W [outputs, inputs] begins in the model
    std::optional<size_t> bias = std::nullopt;  // and b [outputs]

    // z = W·in + b, in double.
    template <typename T>
    void Apply(std::span<const T> model, std::span<const double> in, std::span<double> z) const {
      for (size_t k = 0; k < outputs; ++k) {
        double sum = bias ? double{model[*bias + k]} : 0;
        for (size_t i = 0; i < inputs; ++i) sum += double{model[weight + k * inputs + i]} * in[i];
        z[k] = sum;
      }
    }
  };
  std::vector<Layer> layers;

  // The chain of the run's model. It consists of "linear" layers. "tanh" or "sigmoid" may stand
  // behind each but the last, and "flatten" before the first. An error for any other model begins
  // with `what`, which says what the rule does.
  static absl::StatusOr<LinearChain> Of(const Setup& setup, absl::string_view what);
};

}  // namespace macaw::algorithms
