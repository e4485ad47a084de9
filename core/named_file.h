#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macaw {

// Writing a file that a user named (--out, --csv), where more than a file may stand at the path.
// The files of a run's own folder are written by AtomicWriteFile (core/files.h).
//
// - Nothing, or a file: it is made or replaced atomically.
// - A symbolic link: it stays, and the file that it points at is made or replaced.
// - A device, a pipe, or the file that standard output or standard error goes to: it stays, and
//   gets the bytes after what the program has printed. Opening a pipe waits for its reader.
//
// Errors name the path and the system's reason.
absl::Status WriteNamedFile(const std::string& path, absl::string_view text);

// The same for a writer of its own, which makes a whole file at the path that it is given. For a
// device or a pipe that is a temporary file, which is copied.
absl::Status WriteNamedFile(const std::string& path,
                            const std::function<absl::Status(const std::string& path)>& write);

}  // namespace macaw
