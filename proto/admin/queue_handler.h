#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace macaw::admin {

// A run that an operator hands to a standing server.
struct Submission {
  std::string request_id;  // the same on a repeat, which has no second effect and the same answer
  std::string name;
  std::string by;    // who submits it
  std::string plan;  // TOML, as `macaw plan` writes it
};

// The standing server's side of the operator's protocol. Thread-safe. Each method may take as long
// as a small file takes to write, and returns what follows, in words.
class QueueHandler {
 public:
  virtual ~QueueHandler() = default;
  virtual absl::StatusOr<std::string> Submit(const Submission& submission) = 0;
  virtual absl::StatusOr<std::string> Withdraw(const std::string& name, const std::string& by,
                                               const std::string& reason) = 0;
  virtual std::string Runs() = 0;  // JSON
};

}  // namespace macaw::admin
