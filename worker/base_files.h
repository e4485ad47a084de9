#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/files.h"
#include "proto/fleet/messages.h"

namespace macaw::worker {

// The bases of models with frozen tensors on a node's disk, by their digests, so that a node which
// starts again does not fetch its run's base again. Keeps the newest two: a node may go from one
// run to another and back. Several processes may use the same folder.
class BaseFiles {
 public:
  // `folder` is made when it is needed; empty: nothing is kept.
  explicit BaseFiles(std::string folder) : folder_(std::move(folder)) {}

  // Of a node with that folder; empty: it has none.
  static std::string FolderIn(const std::string& scratch_dir);

  // Whether there is a file of that digest, or of any; Read checks what is in it.
  bool Has(const Digest& digest) const;
  bool HasAny() const;
  // The bytes of that digest. kNotFound: they are not here. A damaged file is removed.
  absl::StatusOr<MappedFile> Read(const Digest& digest) const;
  // Makes room first. A file that cannot be written is a warning in the log: the node goes on
  // without it.
  void Write(const fleet::Blob& blob) const;

 private:
  std::string PathOf(const Digest& digest) const;
  std::string folder_;
};

}  // namespace macaw::worker
