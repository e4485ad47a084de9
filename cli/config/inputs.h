#pragma once

#include <map>
#include <string>

#include "cli/config/config.h"

namespace macaw::cli {

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

// 16 hexadecimal digits of the BLAKE2b-256 of a file, or of the names and files in a folder. A file
// or folder of more than 64 MiB is sampled: 64 samples a file, about 64 MiB in all, and every size.
// "": it cannot be read.
std::string DigestOfInput(const std::string& path);

}  // namespace macaw::cli
