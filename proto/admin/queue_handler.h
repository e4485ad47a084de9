#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::admin {

// A run that an operator hands to a standing server.
struct Submission {
  std::string request_id;  // the same on a repeat, which has no second effect and the same answer
  std::string name;
  std::string by;    // who submits it
  std::string plan;  // TOML, as `macaw plan` writes it
};

// A file of a run that operators may have.
struct ResultFile {
  std::string name;  // below the run's folder, which may be in a folder there
  std::string path;
};

// A piece of such a file. The first one of a file has its name and size.
struct ResultPiece {
  std::string file;
  uint64_t size = 0;
  std::string data;
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
  // kNotFound: there is no such run.
  virtual absl::StatusOr<std::vector<ResultFile>> Results(const std::string& name) = 0;
};

}  // namespace macaw::admin
