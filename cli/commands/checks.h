#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/text.h"

namespace macaw::cli {

// The check of an option whose number must be above 0.
inline CLI::Validator AboveZero() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        const std::optional<double> number = ParseNumber(text);
        const bool above = number.has_value() && std::isfinite(*number) && *number > 0;
        return above ? "" : absl::StrCat("must be a number above 0, and is ", text);
      },
      "POSITIVE");
}

// The check of an option whose number must not be below 0.
inline CLI::Validator ZeroOrAbove() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        const std::optional<double> number = ParseNumber(text);
        const bool fits = number.has_value() && std::isfinite(*number) && *number >= 0;
        return fits ? "" : absl::StrCat("must be a number of 0 or more, and is ", text);
      },
      "NONNEGATIVE");
}

}  // namespace macaw::cli
