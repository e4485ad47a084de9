#pragma once

#include <string>

#include "absl/status/status.h"

namespace macaw::cli {

// What an error of a configuration is about, for programs that show it in a form of their own. A
// field is empty where it does not apply. The message of the status says all of it in words.
struct KeyError {
  std::string place;  // "exp.toml:7" or "--set local.lr=0"; the message begins with it
  std::string key;    // "local.learning_rate"
  std::string meant;  // the key or word that was probably meant: "local.lr"
};

// Keeps the fields of `what` that are not empty in `status`.
absl::Status WithKeyError(absl::Status status, const KeyError& what);

// What WithKeyError kept. Without a key, the first key of a configuration that the message names.
KeyError KeyErrorOf(const absl::Status& status);

}  // namespace macaw::cli
