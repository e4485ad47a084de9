#include "core/python.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/child.h"
#include "core/digest.h"

namespace macaw {

absl::StatusOr<std::string> FindPython() {
  const char* const named = ::getenv("MACAW_PYTHON");
  const std::string command = named == nullptr || *named == '\0' ? "python3" : named;
  std::string path = FindOnPath(command);
  if (::access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(absl::StrCat(command, absl::StrContains(command, '/')
                                                       ? " is no program that can be run"
                                                       : " is not on the PATH"));
}

absl::StatusOr<Fd> MemoryFile(absl::string_view text) {
  Fd file(::memfd_create("macaw-text", MFD_CLOEXEC));
  if (!file.open() || !WriteAllAt(file, BytesOf(text), 0))
    return absl::ErrnoToStatus(errno, "cannot make a memory file");
  return file;
}

}  // namespace macaw
