#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "cli/config/config.h"

namespace macaw::cli {

// A file or folder, and the key that names it.
struct NamedInput {
  std::string key, path;
};

// What a run of this configuration reads while it goes. Its folder and its states are its own.
std::vector<NamedInput> InputsOf(const Config& config);

// Digests of the files and folders that decide a result, so that two files of one name can be told
// apart on any machine. One thread.
class InputDigests {
 public:
  // A JSON object from key to digest: {"data.path": "3f2a91c4d0b75e16"}. Keys without a file here
  // are left out. "workers.command" is there where it runs functions of Python's (train=, loss=),
  // and is what Python says that they are, wherever their files lie.
  std::string Json(const Config& config);
  const std::string& Of(const std::string& path);  // DigestOfInput, of each path once

 private:
  std::map<std::string, std::string> by_path_;  // "": there is no such file
};

inline constexpr size_t kInputDigits = 16;

// kInputDigits hexadecimal digits of the BLAKE2b-256 of a file, or of the names and files in a
// folder. A file or folder of more than 64 MiB is sampled: 64 samples a file, about 64 MiB in all,
// and every size. "": it cannot be read.
std::string DigestOfInput(const std::string& path);

}  // namespace macaw::cli
