#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/fd.h"

namespace macaw::fuzz {

// A file in memory, for decoders that open one by its path.
class ScratchFile {
 public:
  static ScratchFile& Once();  // the only one of this process

  const std::string& path() const { return path_; }
  void Fill(absl::string_view bytes);

 private:
  ScratchFile();
  Fd fd_;
  std::string path_;
};

}  // namespace macaw::fuzz
